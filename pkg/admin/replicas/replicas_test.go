package replicas_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestExpand(t *testing.T) {
	lookup := func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "one.test":
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		case "none.test":
			return nil, nil
		}
		return []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::1"), netip.MustParseAddr("10.0.0.1")}, nil
	}
	for base, want := range map[string]string{
		"http://10.0.0.9:18080":    "http://10.0.0.9:18080",
		"http://[fd00::9]:18080":   "http://[fd00::9]:18080",
		"http://localhost:18080":   "http://localhost:18080",
		"http://one.test:18080":    "http://one.test:18080",
		"https://all.test":         "https://all.test",
		"http://all.test:18080/at": "http://10.0.0.1:18080/at http://10.0.0.2:18080/at http://[fd00::1]:18080/at",
		"http://all.test":          "http://10.0.0.1 http://10.0.0.2 http://[fd00::1]",
		"http://none.test":         "http://none.test!",
	} {
		var got []string
		for _, r := range replicas.Expand(t.Context(), lookup, []string{base, base}) {
			text := r.URL
			if r.Err != nil {
				text += "!"
			}
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", base, got, want)
		}
	}
}
