package detect

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestClassify(t *testing.T) {
	long := "GET /" + strings.Repeat("a", MaxBytes)
	for in, want := range map[string]Protocol{
		"":                                     Undecided,
		"G":                                    Undecided,
		"GET ":                                 Undecided,
		"GET / HTTP/1.":                        Undecided,
		"GET / HTTP/1.1\r\n":                   HTTP1,
		"GET / HTTP/1.0\nHost: x":              HTTP1,
		"M-SEARCH * HTTP/1.1\r\n":              HTTP1,
		"CONNECT echo:80 HTTP/1.1\r\n":         HTTP1,
		"POST http://x/ HTTP/1.1\r\n":          HTTP1,
		"GET / HTTP/1.2\r\n":                   Opaque,
		"GET / \r\n":                           Opaque,
		"GET\r\n":                              Opaque,
		"get x HTTP/1.1\r\n":                   Opaque,
		"EHLO mail.example.com\r\n":            Opaque,
		"PING\r\n":                             Opaque,
		"*1\r\n$4\r\nPING\r\n":                 Opaque,
		"\x00\x00\x00\x08\x04\xd2\x16\x2f":     Opaque,
		"SSH-2.0-OpenSSH\r\n":                  Opaque,
		"SET\x00":                              Opaque,
		"P":                                    Undecided,
		"PRI":                                  Undecided,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n":         Undecided,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":     HTTP2,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00": HTTP2,
		"PRI * HTTP/2.0\r\n\r\nXX":             Opaque,
		"\x16":                                 Undecided,
		"\x16\x03\x01\x02\x00":                 Undecided,
		"\x16\x03\x01\x02\x00\x01":             TLS,
		"\x16\x03\x01\x02\x00\x02":             Opaque,
		"\x16\x02":                             Opaque,
		long:                                   Opaque,
		strings.Repeat("A", 25):                Opaque,
	} {
		if got := Classify([]byte(in)); got != want {
			t.Errorf("%.40q: %v, want %v", in, got, want)
		}
	}
}

// TestByByte: a decision is never another one with more bytes, and comes with them.
func TestByByte(t *testing.T) {
	for _, in := range []string{"GET /x HTTP/1.1\r\nHost: a\r\n\r\n", preface + "\x00\x00\x00\x04", "EHLO x\r\n", "\x16\x03\x01\x02\x00\x01\x00"} {
		decided := Undecided
		for n := range len(in) + 1 {
			got := Classify([]byte(in[:n]))
			if decided != Undecided && got != decided {
				t.Errorf("%q: %v after %v", in[:n], got, decided)
			}
			decided = got
		}
		if decided == Undecided {
			t.Errorf("%q: never decided", in)
		}
	}
}

func hello(t testing.TB) []byte {
	t.Helper()
	a, b := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(a, &tls.Config{ServerName: "echo.example.com", MinVersion: tls.VersionTLS12}).Handshake()
	}()
	buf := make([]byte, 16<<10)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	_ = a.Close()
	<-done
	return buf[:n]
}

func TestClientHello(t *testing.T) {
	if got := Classify(hello(t)); got != TLS {
		t.Errorf("a ClientHello is %v", got)
	}
}

func FuzzClassify(f *testing.F) {
	f.Add([]byte(preface))
	f.Add([]byte("GET / HTTP/1.1\r\n"))
	f.Add(hello(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := Classify(b)
		if got == Undecided && len(b) >= MaxBytes {
			t.Errorf("undecided after %d bytes", len(b))
		}
		for n := range b {
			if before := Classify(b[:n]); before != Undecided && before != got {
				t.Errorf("%v with %d bytes, %v with %d", before, n, got, len(b))
			}
		}
	})
}
