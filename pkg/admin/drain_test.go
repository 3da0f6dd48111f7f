package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// barrier is a Drainer and a Versioner.
type barrier struct {
	report   drain.Report
	err      error
	asked    string
	deadline time.Duration
}

func (b *barrier) Drain(ctx context.Context, target drain.Target, timeout time.Duration) (drain.Report, error) {
	b.asked = fmt.Sprint(target, " ", timeout)
	if end, ok := ctx.Deadline(); ok {
		b.deadline = time.Until(end)
	}
	return b.report, b.err
}

func (b *barrier) Versions(_ context.Context, t mesh.Type) ([]ack.Versions, error) {
	b.asked = "versions " + t.Short()
	return nil, b.err
}

func TestDrain(t *testing.T) {
	still := drain.Report{Target: "t", Waits: []drain.Wait{{Reason: drain.Stale, Node: "n"}}}
	for _, tt := range []struct {
		query  string
		report drain.Report
		err    error
		code   int
		asked  string
	}{
		{"?namespace=default&pod=a", drain.Report{Drained: true}, nil, 200, "pod default/a 30s"},
		{"?namespace=default&pod=a&timeout=2m", still, nil, 504, "pod default/a 2m0s"},
		{"?endpoint=10.0.0.1:80&timeout=0s", still, nil, 504, "endpoint 10.0.0.1 port 80 0s"},
		{"?endpoint=10.0.0.1:80", still, fmt.Errorf("full: %w", ErrUnavailable), 503, "endpoint 10.0.0.1 port 80 30s"},
		{"?endpoint=10.0.0.1:80", still, errors.New("broken"), 500, "endpoint 10.0.0.1 port 80 30s"},
		{"", still, nil, 400, ""},
		{"?pod=a", still, nil, 400, ""},
		{"?namespace=default", still, nil, 400, ""},
		{"?endpoint=echo:80", still, nil, 400, ""},
		{"?endpoint=10.0.0.1:80&pod=a&namespace=b", still, nil, 400, ""},
		{"?endpoint=10.0.0.1:80&timeout=soon", still, nil, 400, ""},
		{"?endpoint=10.0.0.1:80&timeout=-1s", still, nil, 400, ""},
		{"?endpoint=10.0.0.1:80&timeout=1h", still, nil, 400, ""},
		{"?endpoint=10.0.0.1:80&endpoint=10.0.0.2:80", still, nil, 400, ""},
		{"?endpont=10.0.0.1:80", still, nil, 400, ""},
	} {
		b := &barrier{report: tt.report, err: tt.err}
		w := do(t, New(Config{Drainer: b}), "GET", "/drain"+tt.query)
		if w.Code != tt.code || b.asked != tt.asked {
			t.Errorf("%s: %d, want %d; asked %q, want %q: %s", tt.query, w.Code, tt.code, b.asked, tt.asked, w.Body)
		}
		var body map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Errorf("%s: %v in %s", tt.query, err, w.Body)
		}
		if _, isReport := body["waits"]; isReport != (tt.code == 200 || tt.code == 504) {
			t.Errorf("%s: %s", tt.query, w.Body)
		}
		if tt.asked != "" && b.deadline < drain.MaxTimeout {
			t.Errorf("%s: only %v for an answer", tt.query, b.deadline)
		}
	}
}

func TestVersions(t *testing.T) {
	b := &barrier{}
	s := New(Config{Versioner: b})
	if w := do(t, s, "GET", "/versions?type=eds"); w.Code != 200 || b.asked != "versions eds" {
		t.Errorf("%d, asked %q: %s", w.Code, b.asked, w.Body)
	}
	if w := do(t, s, "GET", "/versions?type=nonsense"); w.Code != 400 {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}
