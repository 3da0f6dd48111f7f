package proxy

import (
	"net"
	"time"

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
