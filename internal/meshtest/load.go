package meshtest

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// Load sends requests at a steady rate over a few connections, and never sends
// one again: whatever goes wrong is a failure.
type Load struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex // guards what follows
	answers  map[string]int
	last     map[string]time.Time
	failures []string
	sent     int
}

// StartLoad sends perSecond requests for an authority through the proxy at address, until Stop.
func StartLoad(t testing.TB, address, authority string, perSecond int) *Load {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &Load{cancel: cancel, answers: make(map[string]int), last: make(map[string]time.Time)}
	const workers = 8
	due := make(chan struct{}, perSecond)
	l.wg.Go(func() { pace(ctx, due, perSecond) })
	for range workers {
		l.wg.Go(func() { l.work(due, address, authority) })
	}
	t.Cleanup(l.Stop)
	return l
}

// pace makes a request due at each tick, and closes due in the end.
func pace(ctx context.Context, due chan<- struct{}, perSecond int) {
	defer close(due)
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		select {
		case due <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

func (l *Load) work(due <-chan struct{}, address, authority string) {
	c := &Client{Address: address}
	defer c.Close()
	for range due {
		status, body, err := c.Get(authority)
		l.record(status, body, err)
	}
}

func (l *Load) record(status int, body string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	switch {
	case err != nil:
		l.failures = append(l.failures, err.Error())
	case status != http.StatusOK:
		l.failures = append(l.failures, fmt.Sprintf("status %d: %s", status, body))
	default:
		l.answers[body]++
		l.last[body] = time.Now()
	}
}

// Stop waits for the requests under way.
func (l *Load) Stop() {
	l.cancel()
	l.wg.Wait()
}

// Result gives how many requests were sent, how many each backend answered, and every failure.
func (l *Load) Result() (sent int, answers map[string]int, failures []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent, maps.Clone(l.answers), append([]string(nil), l.failures...)
}

// Last is when a backend last answered; zero for never.
func (l *Load) Last(backend string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[backend]
}

// Client is an HTTP/1.1 client of one connection that never sends anything
// twice, unlike net/http's. The zero value with an Address is ready. Not safe
// for concurrent use.
type Client struct {
	Address string
	conn    net.Conn
	reader  *bufio.Reader
}

// requestTimeout bounds one request.
const requestTimeout = 10 * time.Second

// Get sends one GET / for an authority and gives the status and the body.
func (c *Client) Get(authority string) (int, string, error) {
	return c.ask(http.MethodGet, authority, "")
}

// Post is Get with POST and a body.
func (c *Client) Post(authority, body string) (int, string, error) {
	return c.ask(http.MethodPost, authority, fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body))
}

func (c *Client) ask(method, authority, rest string) (int, string, error) {
	response, err := c.do(method, authority, cmp.Or(rest, "\r\n"))
	if err != nil {
		c.Close()
		return 0, "", err
	}
	body, err := io.ReadAll(response.Body)
	if err != nil || response.Close {
		c.Close()
	}
	if err != nil {
		return 0, "", fmt.Errorf("read body: %w", err)
	}
	if why := response.Header.Get("Proxy-Status"); why != "" {
		return response.StatusCode, why, nil
	}
	return response.StatusCode, string(body), nil
}

func (c *Client) do(method, authority, rest string) (*http.Response, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.Address, requestTimeout)
		if err != nil {
			return nil, err
		}
		c.conn, c.reader = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c.conn, "%s / HTTP/1.1\r\nHost: %s\r\n%s", method, authority, rest); err != nil {
		return nil, fmt.Errorf("send: %w", err)
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, fmt.Errorf("read response: %w", err)
	}
	return response, nil
}

// Close closes the connection; the next Get opens another.
func (c *Client) Close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}
