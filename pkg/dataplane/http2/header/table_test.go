package header

import (
	"fmt"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// TestLongLife: a table that has grown, and whose entries have been replaced more often than a ref can count, still
// says what was meant.
func TestLongLife(t *testing.T) {
	e := NewEncoder()
	var got []hpack.HeaderField
	d := hpack.NewDecoder(TableSize, func(f hpack.HeaderField) { got = append(got, f) })
	var block []byte
	indexed := 0
	for i := range 2*int(fixed) + 100 {
		m := message.Response{Status: 200, Fields: []message.Field{{Name: "server", Value: "same"}, {Name: "x", Value: fmt.Sprint(i)}}}
		for range 3 {
			block, got = e.AppendResponse(block[:0], &m), got[:0]
			if _, err := d.Write(block); err != nil {
				t.Fatalf("response %d: %v", i, err)
			}
			if len(got) != 3 || got[1].Value != "same" || got[2].Value != m.Fields[1].Value {
				t.Fatalf("response %d came as %v", i, got)
			}
		}
		// The third time all three are in the tables.
		if len(block) <= 6 {
			indexed++
		}
	}
	if indexed < int(fixed) {
		t.Errorf("only %d of %d responses came from the table", indexed, 2*int(fixed)+100)
	}
	if n := len(e.ring); n > entries {
		t.Errorf("the table has room for %d entries, more than %d can be in it", n, entries)
	}
}
