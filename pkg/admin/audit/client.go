package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	// askTimeout bounds one question to one server.
	askTimeout = 15 * time.Second
	// maxAnswer bounds its answer, in bytes: some 10,000 nodes with full histories.
	maxAnswer = 256 << 20
	// maxError bounds how much of a server's error is shown.
	maxError = 4 << 10
)

// client asks servers. It has connections of its own, which close ends.
type client struct{ http http.Client }

func newClient() *client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &client{http.Client{Transport: transport, Timeout: askTimeout}}
}

func (c *client) close() { c.http.CloseIdleConnections() }

// ask gives a server's audit. What cannot be one is an error: an address of
// something else must not pass for a mesh without nodes.
func (c *client) ask(ctx context.Context, server string, node mesh.NodeID) (ack.Audit, error) {
	target := server + "/audit"
	if node != "" {
		target += "?node=" + url.QueryEscape(string(node))
	}
	body, err := c.get(ctx, target)
	if err != nil {
		return ack.Audit{}, err
	}
	return decode(body)
}

// get gives the body of what answers 200; otherwise the error may be a statusError.
func (c *client) get(ctx context.Context, target string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok { // names the URL again, which the caller does
			err = wrapped.Err
		}
		return nil, fmt.Errorf("could not ask: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, statusError{resp.StatusCode, fmt.Sprintf("answered %s: %s", resp.Status, reason(resp.Body))}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("answer is longer than %d MiB", maxAnswer>>20)
	}
	return body, nil
}

// statusError is an answer that is not 200.
type statusError struct {
	code int
	text string
}

// Error implements error.
func (e statusError) Error() string { return e.text }

// decode reads an audit; fields that this build does not know are ignored.
func decode(body []byte) (ack.Audit, error) {
	var a ack.Audit
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("answer is no audit: %w", err)
	}
	if a.Time.IsZero() {
		return a, errors.New("answer is no audit: it has no time")
	}
	for _, n := range a.Nodes {
		if n.State.Precedence() < 0 {
			return a, fmt.Errorf("answer is no audit: node %q has the unknown state %q", n.ID, n.State)
		}
	}
	return a, nil
}

// reason gives the error in the body of a refusal, on one line.
func reason(body io.Reader) string {
	text, err := io.ReadAll(io.LimitReader(body, maxError))
	if err != nil {
		return err.Error()
	}
	var failure struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(text, &failure) == nil && failure.Error != "" {
		return failure.Error
	}
	return strings.Join(strings.Fields(string(text)), " ")
}
