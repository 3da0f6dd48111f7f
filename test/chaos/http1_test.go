package chaos

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"
)

// requestOf is the id in a path "/chaos/ID" or "/chaos/ID/WHAT".
func requestOf(path string) (id, what string) {
	id, what, _ = strings.Cut(strings.TrimPrefix(path, "/chaos/"), "/")
	return id, what
}

func (e *peer) serveHTTP1(c *net.TCPConn) {
	r := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		id, _ := requestOf(q.URL.Path)
		if !e.answer1(c, r, q, id) {
			return
		}
	}
}

// answer1 answers a request; false ends the connection.
func (e *peer) answer1(c *net.TCPConn, r *bufio.Reader, q *http.Request, id string) bool {
	plan, healed := e.plan()
	if plan == switched && q.Header.Get("Upgrade") != "" {
		plan = dropped
	}
	if plan != "" && plan != goneAway && plan != refused {
		e.ledger.did(e.address, id, plan)
	}
	switch plan { //nolint:exhaustive // the others are of connections, or of other protocols
	case dropped:
		if rand.IntN(2) == 0 {
			hangUp(c)
		}
		return false
	case held:
		<-healed
	case delayed:
		wait(healed, time.Duration(100+rand.IntN(900))*time.Millisecond)
	case failed:
		status := []int{500, 502, 503, 504}[rand.IntN(4)]
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d Trouble\r\nContent-Length: 4\r\n\r\nownx", status)
		return err == nil
	case nonsense:
		_, _ = io.WriteString(c, "220 mail.example.com ESMTP\r\n\r\n")
		return false
	case switched:
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: chaos\r\n\r\n")
		wait(healed, beforeCut)
		return false
	}
	e.ledger.did(e.address, id, began)
	if q.Header.Get("Upgrade") != "" {
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		e.echo(c, r, id, plan == cut)
		return false
	}
	if plan == cut {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun")
		wait(nil, beforeCut)
		if rand.IntN(2) == 0 {
			hangUp(c)
		}
		return false
	}
	return writeBody(c, id) == nil
}

// writeBody answers with the id, whole or in chunks.
func writeBody(c net.Conn, id string) error {
	if rand.IntN(2) == 0 {
		_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(id), id)
		return err
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return err
	}
	for _, b := range []byte(id) {
		if _, err := fmt.Fprintf(c, "1\r\n%c\r\n", b); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c, "0\r\n\r\n")
	return err
}

// echo sends each line back, until the end or, with cutting, until the third.
func (e *peer) echo(c *net.TCPConn, r *bufio.Reader, id string, cutting bool) {
	for n := 0; ; n++ {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if cutting && n == 2 {
			hangUp(c)
			return
		}
		if a, _ := e.now(); a == cut && !cutting && n == 2 {
			e.ledger.did(e.address, id, cut)
			hangUp(c)
			return
		}
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
	}
}

// serveOpaque echoes lines; the first one is the id.
func (e *peer) serveOpaque(c *net.TCPConn) {
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return
	}
	id := strings.TrimSpace(line)
	plan, _ := e.plan()
	if plan == cut || plan == nonsense {
		e.ledger.did(e.address, id, plan)
	}
	if plan == nonsense {
		_, _ = io.WriteString(c, "220 mail.example.com ESMTP\r\n")
		return
	}
	e.ledger.did(e.address, id, began)
	if _, err := io.WriteString(c, line); err != nil {
		return
	}
	e.echo(c, r, id, plan == cut)
}
