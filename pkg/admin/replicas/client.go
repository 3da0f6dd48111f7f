package replicas

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
	"unicode"
)

const (
	// askTimeout bounds one question to one server.
	askTimeout = 15 * time.Second
	// maxAnswer bounds its answer, in bytes: the audit of some 10,000 nodes with full histories.
	maxAnswer = 256 << 20
	// maxReason bounds how much of a refusal is shown, in bytes.
	maxReason = 4 << 10
)

// Client asks servers over connections of its own, which Close ends. It is safe
// for concurrent use.
type Client struct{ http http.Client }

// NewClient makes a Client. A question takes at most 15 s.
func NewClient() *Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &Client{http.Client{Transport: transport, Timeout: askTimeout}}
}

// Close ends the connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get gives the body of what answers 200, of at most 256 MiB. The error is a
// *StatusError where there is another answer; it does not name target.
func (c *Client) Get(ctx context.Context, target string) ([]byte, error) {
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
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("answer is longer than %d MiB", maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		return nil, &StatusError{Code: resp.StatusCode, Status: resp.Status, Body: body}
	}
	return body, nil
}

// StatusError is an answer that is not 200.
type StatusError struct {
	Code int
	// Status is the code with its words.
	Status string
	Body   []byte
}

// Error gives the status, and the error in the body on one line.
func (e *StatusError) Error() string { return "answered " + e.Status + ": " + reason(e.Body) }

// reason reads {"error": "…"}, as package admin answers, or whatever else there is.
func reason(body []byte) string {
	body = body[:min(len(body), maxReason)]
	var failure struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(body, &failure) == nil && failure.Error != "" {
		return Printable(failure.Error)
	}
	return Printable(string(body))
}

// Printable gives text on one line and without control characters: node ids
// and NACK messages come from clients, and must not steer the terminal.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || (!unicode.IsPrint(r) && !unicode.IsSpace(r)) {
			return ' '
		}
		return r
	}, text)
	return strings.Join(strings.Fields(text), " ")
}
