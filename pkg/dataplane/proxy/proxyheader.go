package proxy

import (
	"net"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/capture"
	"github.com/freshmesh/freshmesh/pkg/dataplane/endpoints"
	"github.com/freshmesh/freshmesh/pkg/dataplane/proxyproto"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// proxyHeaderTime bounds the wait for a PROXY header, which its sender writes first.
const proxyHeaderTime = 5 * time.Second

// readProxyHeader takes the header off c. One without addresses leaves what the socket says.
func readProxyHeader(c *net.TCPConn, socket proxyproto.Header) (proxyproto.Header, error) {
	_ = c.SetReadDeadline(time.Now().Add(proxyHeaderTime))
	defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	h, err := proxyproto.Read(c)
	if err != nil || !h.Source.IsValid() {
		return socket, err
	}
	return h, nil
}

// ends are those of the client's connection, as a PROXY header says them; none where Serve did not accept it.
func (x *exchange) ends() proxyproto.Header {
	if x.conn == nil {
		return proxyproto.Header{}
	}
	h := proxyproto.Header{Source: capture.AddrPort(x.conn.RemoteAddr()), Destination: capture.AddrPort(x.conn.LocalAddr())}
	if x.conn.to != nil {
		h.Destination = x.conn.to.original
	}
	return h
}

// announce writes a PROXY header to an upstream whose cluster asks for it.
func announce(cluster *endpoints.Cluster, raw *upstream.Raw, from proxyproto.Header) error {
	if !cluster.Config().ProxyHeader {
		return nil
	}
	if _, err := raw.Write(from.Append(nil)); err != nil {
		return &upstream.Error{Reason: upstream.ResetBeforeHeaders, Err: err}
	}
	return nil
}
