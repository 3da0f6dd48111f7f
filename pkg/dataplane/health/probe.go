package health

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/freshmesh/freshmesh/pkg/dataplane/discovery"
)

// askHTTP makes one request on a connection of its own: a connection kept from
// before would say less of the endpoint.
func askHTTP(ctx context.Context, t Target) Result {
	var protocols http.Protocols
	protocols.SetHTTP1(!t.Check.HTTP2)
	protocols.SetUnencryptedHTTP2(t.Check.HTTP2)
	transport := &http.Transport{Protocols: &protocols, DisableKeepAlives: !t.Check.HTTP2, DisableCompression: true}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, t.Check.Method, "http://"+t.Address.String()+t.Check.Path, http.NoBody)
	if err != nil {
		return bad(err)
	}
	if req.Host = t.Check.Host; req.Host == "" {
		req.Host = t.Authority
	}
	req.Header.Set("User-Agent", "freshmesh-health-check")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return bad(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if expected(t.Check.Expected, resp.StatusCode) {
		return Result{Good: true}
	}
	return Result{Why: "status " + resp.Status, Decisive: resp.StatusCode == http.StatusServiceUnavailable}
}

func expected(ranges []discovery.StatusRange, status int) bool {
	for _, r := range ranges {
		if int64(status) >= r.From && int64(status) < r.To {
			return true
		}
	}
	return false
}

// maxReceive bounds what a TCP check reads while it looks for what it expects.
const maxReceive = 64 << 10

// askTCP connects, and where the check says so sends and looks for the pieces that must come in order.
func askTCP(ctx context.Context, t Target) Result {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.Address.String())
	if err != nil {
		return bad(err)
	}
	defer func() { _ = c.Close() }()
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline)
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if len(t.Check.Send) > 0 {
		if _, err := c.Write(t.Check.Send); err != nil {
			return bad(err)
		}
	}
	return receive(c, t.Check.Receive)
}

func receive(r io.Reader, pieces [][]byte) Result {
	var got []byte
	buf := make([]byte, 4<<10)
	total := 0
	for len(pieces) > 0 {
		if i := bytes.Index(got, pieces[0]); i >= 0 {
			got, pieces = got[i+len(pieces[0]):], pieces[1:]
			continue
		}
		n, err := r.Read(buf)
		got = append(got, buf[:n]...)
		total += n
		if err != nil && n == 0 {
			return bad(fmt.Errorf("receive: %w", err))
		}
		if total > maxReceive {
			return bad(fmt.Errorf("receive: not in the first %d bytes", maxReceive))
		}
	}
	return Result{Good: true}
}
