package proxy

import (
	"io"
	"net"
)

// replayed is a connection of which the first bytes have been read already:
// they come again, before the rest.
type replayed struct {
	*net.TCPConn
	head []byte
	// to is where a captured connection was going; nil for one that came by itself.
	to *route
	// closer closes the connection with what a listener of ours keeps of it; nil for TCPConn alone.
	closer io.Closer
}

// Close closes the connection.
func (r *replayed) Close() error {
	if r.closer != nil {
		return r.closer.Close()
	}
	return r.TCPConn.Close()
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.head) == 0 {
		return r.TCPConn.Read(p)
	}
	n := copy(p, r.head)
	r.head = r.head[n:]
	return n, nil
}

// WriteTo keeps io.Copy from going round Read.
func (r *replayed) WriteTo(w io.Writer) (int64, error) {
	var n int64
	if len(r.head) > 0 {
		m, err := w.Write(r.head)
		n, r.head = int64(m), r.head[m:]
		if err != nil {
			return n, err
		}
	}
	m, err := r.TCPConn.WriteTo(w)
	return n + m, err
}
