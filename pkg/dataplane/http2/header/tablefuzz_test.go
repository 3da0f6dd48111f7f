package header

import (
	"bytes"
	"fmt"
	"testing"

	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// FuzzEncoderTable: whatever is written and whatever sizes the peer sets between blocks, x/net's decoder with the table
// that the peer then has reads what was meant, and its table is never larger than allowed.
func FuzzEncoderTable(f *testing.F) {
	f.Add([]byte("abcabcabc\xf0\x00abc\xf0\xffabc\xf1\x10\xf0\x40aaabbbccc"))
	f.Add(bytes.Repeat([]byte("abcdefghijklmnopqrstuvwxyz\xf0\x20"), 9))
	f.Fuzz(func(t *testing.T, ops []byte) {
		e := NewEncoder()
		var got []hpack.HeaderField
		d := hpack.NewDecoder(TableSize, func(f hpack.HeaderField) { got = append(got, f) })
		var fields []message.Field
		var block []byte
		check := func() {
			block, got = e.AppendTrailers(block[:0], fields), got[:0]
			if _, err := d.Write(block); err != nil {
				t.Fatalf("%x: %v", block, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if len(got) != len(fields) {
				t.Fatalf("%d fields of %d", len(got), len(fields))
			}
			for i, f := range fields {
				if got[i].Name != f.Name || got[i].Value != f.Value || got[i].Sensitive != f.Sensitive {
					t.Fatalf("field %d of %x came as %v, not %v", i, block, got[i], f)
				}
			}
			fields = fields[:0]
		}
		for i := 0; i < len(ops); i++ {
			switch op := ops[i]; {
			case op >= 0xf0:
				check()
				n := uint32(0)
				if i++; i < len(ops) {
					n = uint32(ops[i]) << (op & 7)
				}
				e.SetTableSize(n)
				d.SetAllowedMaxDynamicTableSize(n)
			case op >= 0xe0:
				check()
			default:
				// Names of some kinds, values of some lengths; many come again.
				name := []string{"server", "x-a", "date", "content-type", ":status", "x-" + fmt.Sprint(op)}[op%6]
				fields = append(fields, message.Field{Name: name, Value: string(bytes.Repeat([]byte{'a' + op%26}, int(op)*int(op)/37)), Sensitive: op%31 == 30})
			}
		}
		check()
	})
}
