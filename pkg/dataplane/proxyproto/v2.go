package proxyproto

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
)

const signature = "\r\n\r\n\x00\r\nQUIT\n"

// maxBytes bounds the addresses and what follows them; the specification
// advises receivers to take 216, and senders with TLVs send more.
const maxBytes = 4 << 10

// Header is what a PROXY header says.
type Header struct {
	// Source and Destination are invalid for a connection that the sender made
	// for itself (LOCAL), and for address families other than IP.
	Source, Destination netip.AddrPort
}

// Read takes a header off r, and not a byte more. The error is for anything
// that is no whole header of version 2 for a stream.
func Read(r io.Reader) (Header, error) {
	var fixed [16]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return Header{}, fmt.Errorf("read PROXY header: %w", err)
	}
	if string(fixed[:12]) != signature {
		return Header{}, errors.New("read PROXY header: no signature of version 2")
	}
	if fixed[12]>>4 != 2 {
		return Header{}, fmt.Errorf("read PROXY header: version %d", fixed[12]>>4)
	}
	length := int(binary.BigEndian.Uint16(fixed[14:]))
	if length > maxBytes {
		return Header{}, fmt.Errorf("read PROXY header: %d bytes of addresses", length)
	}
	body := make([]byte, length)
	if _, err := io.ReadFull(r, body); err != nil {
		return Header{}, fmt.Errorf("read PROXY header: %w", err)
	}
	switch command := fixed[12] & 0xf; command {
	case 0: // LOCAL: whatever the addresses are, they do not count
		return Header{}, nil
	case 1:
		return addresses(fixed[13], body)
	default:
		return Header{}, fmt.Errorf("read PROXY header: command %d", command)
	}
}

func addresses(family byte, body []byte) (Header, error) {
	size := 0
	switch family {
	case 0x11: // TCP over IPv4
		size = 4
	case 0x21: // TCP over IPv6
		size = 16
	case 0x00, 0x31: // unspecified, Unix stream
		return Header{}, nil
	default:
		return Header{}, fmt.Errorf("read PROXY header: address family and protocol %#x", family)
	}
	if len(body) < 2*size+4 {
		return Header{}, fmt.Errorf("read PROXY header: %d bytes for two addresses", len(body))
	}
	from, _ := netip.AddrFromSlice(body[:size])
	to, _ := netip.AddrFromSlice(body[size : 2*size])
	ports := body[2*size:]
	return Header{
		Source:      netip.AddrPortFrom(from.Unmap(), binary.BigEndian.Uint16(ports)),
		Destination: netip.AddrPortFrom(to.Unmap(), binary.BigEndian.Uint16(ports[2:])),
	}, nil
}

// Append writes the header; one without valid addresses says LOCAL. Addresses
// of two families are both written as IPv6.
func (h Header) Append(b []byte) []byte {
	b = append(b, signature...)
	from, to := h.Source.Addr().Unmap(), h.Destination.Addr().Unmap()
	switch {
	case !h.Source.IsValid() || !h.Destination.IsValid():
		return append(b, 0x20, 0, 0, 0)
	case from.Is4() && to.Is4():
		b = append(b, 0x21, 0x11, 0, 12)
		b = append(append(b, from.AsSlice()...), to.AsSlice()...)
	default:
		x, y := from.As16(), to.As16()
		b = append(b, 0x21, 0x21, 0, 36)
		b = append(append(b, x[:]...), y[:]...)
	}
	b = binary.BigEndian.AppendUint16(b, h.Source.Port())
	return binary.BigEndian.AppendUint16(b, h.Destination.Port())
}
