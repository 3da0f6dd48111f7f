package audit

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/freshmesh/freshmesh/pkg/ack"
)

// Whatever a server answers, it is an error or a table that steers no terminal.
func FuzzDecode(f *testing.F) {
	body, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"time":"2026-01-01T00:00:00Z","nodes":[{"id":"a","state":"fresh","types":[{"nack":{}}]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := decode(body)
		if err != nil {
			return
		}
		for _, o := range []Options{{Output: Table}, {Output: Wide}} {
			text := table(o, Merge([]ack.Audit{a, a}))
			if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
				t.Fatalf("control character at %d of %q", i, text)
			}
		}
	})
}
