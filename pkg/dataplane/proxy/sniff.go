package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/freshmesh/freshmesh/pkg/dataplane/detect"
	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

const (
	// clientSilence is how long a client may say nothing before the upstream is
	// dialled, since the server may be the one to speak first.
	clientSilence = 100 * time.Millisecond
	// undecidedTime bounds the wait for the rest of what has begun like HTTP or TLS.
	undecidedTime = 10 * time.Second
	// greetingBytes is how much of a server's first words is read before the copying begins.
	greetingBytes = 4 << 10
)

// opening is how a connection began.
type opening struct {
	// head is what the client has said, greeting what the server has.
	head, greeting []byte
	protocol       detect.Protocol
	// up is the connection to the upstream, where there is one already.
	up *link
}

// sniff looks how a connection begins:
//
//	client speaks ──────────────▶ undecided ──▶ decided
//	   │ silent for 100 ms            ▲
//	   ▼                              │ client speaks first: what was dialled stays for opaque protocols
//	upstream is dialled ──▶ both are listened to ──server speaks first──▶ opaque
//
// Without dial the client has the idle time to speak, and what is silent is opaque.
// An error is a failed dial, or one of the client's connection; nothing is left open then but client.
func sniff(client *net.TCPConn, idle time.Duration, dial func() (*link, error)) (o opening, err error) {
	defer func() { _ = client.SetDeadline(time.Time{}) }()
	buf := make([]byte, detect.MaxBytes)
	silence := clientSilence
	if dial == nil {
		silence = idle
	}
	n, err := readBefore(client, buf, silence)
	if dial != nil && n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		if o.up, err = dial(); err != nil {
			return o, err
		}
		var first int
		if o.greeting, first, err = listenToBoth(client, o.up, buf, idle); len(o.greeting) > 0 || err != nil {
			o.head, o.protocol = buf[:first], detect.Opaque
			return o, keep(&o, err)
		}
		n = first
	}
	for deadline := time.Now().Add(undecidedTime); ; {
		o.head, o.protocol = buf[:n], detect.Classify(buf[:n])
		if err != nil && o.protocol == detect.Undecided {
			// What ended or stood still before it was HTTP is not HTTP.
			o.protocol = detect.Opaque
		}
		if o.protocol != detect.Undecided {
			return o, keep(&o, err)
		}
		var more int
		more, err = readBefore(client, buf[n:], time.Until(deadline))
		n += more
	}
}

// keep gives nil for what ends an opening without spoiling the connection.
func keep(o *opening, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	o.up.close()
	o.up = nil
	return &upstream.Error{Reason: upstream.ClientGone, Unsent: true, Unanswered: true, Err: err}
}

func readBefore(c *net.TCPConn, p []byte, d time.Duration) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(d)); err != nil {
		return 0, err
	}
	return c.Read(p)
}

// listenToBoth waits until one side speaks or ends, and gives what both said.
// The error is io.EOF where the server ended without a word, and
// os.ErrDeadlineExceeded where nobody spoke for the idle time.
func listenToBoth(client *net.TCPConn, up *link, buf []byte, idle time.Duration) (greeting []byte, n int, err error) {
	past := time.Unix(1, 0)
	if err := client.SetReadDeadline(time.Now().Add(idle)); err != nil {
		return nil, 0, err
	}
	words := make([]byte, greetingBytes)
	var said int
	var serverErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		said, serverErr = up.Read(words)
		_ = client.SetReadDeadline(past)
	}()
	n, err = client.Read(buf)
	_ = up.SetReadDeadline(past)
	<-done
	_ = up.SetReadDeadline(time.Time{})
	switch {
	case said > 0:
		return words[:said], n, nil
	case n > 0:
		return nil, n, nil
	case serverErr != nil && !errors.Is(serverErr, os.ErrDeadlineExceeded):
		// The end passes on to the client when the copying finds it again.
		return nil, n, io.EOF
	}
	return nil, n, err
}
