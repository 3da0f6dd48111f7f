package dns

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

func addressRecords(name string, addresses []netip.Addr) []dnsmessage.Resource {
	var records []dnsmessage.Resource
	for _, a := range addresses {
		if a.Is4() {
			records = append(records, dnsmessage.Resource{Header: recordHeader(name, dnsmessage.TypeA), Body: &dnsmessage.AResource{A: a.As4()}})
		} else {
			records = append(records, dnsmessage.Resource{Header: recordHeader(name, dnsmessage.TypeAAAA), Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return records
}

func recordHeader(name string, t dnsmessage.Type) dnsmessage.ResourceHeader {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		panic(err) // it came out of a message
	}
	return dnsmessage.ResourceHeader{Name: n, Type: t, Class: dnsmessage.ClassINET, TTL: ttl}
}

func selectorOf(service *v1.Service) labels.Selector {
	return labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service.Name})
}

// answerStream answers one question of a stream (RFC 1035, section 4.2.2).
func (s *Server) answerStream(conn net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return err
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, question); err != nil {
		return err
	}
	answer := s.answer(question, false)
	if answer == nil {
		return io.ErrUnexpectedEOF
	}
	_, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)) //nolint:gosec // packed messages are shorter
	return err
}
