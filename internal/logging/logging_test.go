package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// TestRoute is the only test that calls Route, because Route is for once in a process.
func TestRoute(t *testing.T) {
	var out bytes.Buffer
	Route(New(&out, "xds-server", config.Log{Level: "debug", Format: "json"}))
	t.Cleanup(klog.ClearLogger)

	klog.InfoS("watch started", "object", klog.KRef("default", "echo"))
	klog.ErrorS(errors.New("refused"), "watch failed", "kind", "Service")
	grpclog.Component("core").Warning("connection lost")
	grpclog.Component("core").Info("not at this level")

	var lines []map[string]any
	for line := range strings.Lines(out.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		lines = append(lines, m)
	}
	want := []map[string]any{
		{"@level": "info", "@module": "xds-server.kubernetes", "@message": "watch started"},
		{"@level": "warn", "@module": "xds-server.kubernetes", "@message": "watch failed", "kind": "Service", "err": "refused"},
		{"@level": "debug", "@module": "xds-server.grpc", "text": "[core] connection lost"},
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), out.String())
	}
	for i, w := range want {
		for k, v := range w {
			if lines[i][k] != v {
				t.Errorf("line %d: %s is %v, want %v", i, k, lines[i][k], v)
			}
		}
	}
}

func TestSinkLevels(t *testing.T) {
	for _, test := range []struct {
		level string
		want  [3]bool // at verbosity 0, 4, 5
	}{
		{"warn", [3]bool{false, false, false}},
		{"info", [3]bool{true, false, false}},
		{"debug", [3]bool{true, true, false}},
		{"trace", [3]bool{true, true, true}},
	} {
		s := logr.New(sink{New(&bytes.Buffer{}, "x", config.Log{Level: test.level})})
		got := [3]bool{s.Enabled(), s.V(4).Enabled(), s.V(5).Enabled()}
		if got != test.want {
			t.Errorf("%s: %v, want %v", test.level, got, test.want)
		}
	}
}

func TestTextHasNamesAndPairs(t *testing.T) {
	var out bytes.Buffer
	s := logr.New(sink{New(&out, "a", config.Log{Level: "info", Format: "text"})})
	s.WithName("b").WithValues("k", 1).Info("hello", "l", "m")
	if got := out.String(); !strings.Contains(got, "[INFO]  a.b: hello: k=1 l=m") {
		t.Errorf("%q", got)
	}
}
