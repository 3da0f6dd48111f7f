package envoyaudit

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Whatever Envoy and the control plane say, the comparison ends with an error or
// a report. The input is edits of what was recorded: which file, which value in it, by what.
func FuzzCompare(f *testing.F) {
	files := [][]string{}
	for _, name := range recordings {
		var texts []string
		for _, file := range []string{"config_dump", "clusters", "cds", "eds", "lds", "rds"} {
			texts = append(texts, string(read(f, name, file+".json")))
		}
		files = append(files, texts)
	}
	f.Add(uint8(0), []byte{})
	f.Add(uint8(1), []byte("0123"))
	f.Add(uint8(2), []byte("\x00\x01\x02\x03\x01\x20\x30\x04\x02\x02\x02\x02"))
	f.Fuzz(func(t *testing.T, recording uint8, edits []byte) {
		texts := slices.Clone(files[int(recording)%len(files)])
		for ; len(edits) >= 4; edits = edits[4:] {
			i := int(edits[0]) % len(texts)
			texts[i] = edited(t, texts[i], int(edits[1])<<8|int(edits[2]), int(edits[3]))
		}
		running, err := Read([]byte(texts[0]), []byte(texts[1]))
		if err != nil {
			return
		}
		want := Wanted{}
		for i, kind := range mesh.GeneratedTypes {
			var answer struct{ Resources []Resource }
			if json.Unmarshal([]byte(texts[2+i]), &answer) == nil {
				want[kind] = answer.Resources
			}
		}
		if r := Compare(want, running); r.InEffect != (len(r.Differences) == 0) {
			t.Errorf("in effect %v, %d differences", r.InEffect, len(r.Differences))
		}
	})
}

// edited replaces the n-th value of a JSON text.
func edited(t *testing.T, text string, n, by int) string {
	t.Helper()
	var tree any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	values := []any{nil, "", "x", true, -1, 1e300, []any{}, map[string]any{}, []any{nil}, map[string]any{"@type": "x"}, "type.googleapis.com/google.protobuf.Any"}
	n %= count(tree)
	out, err := json.Marshal(replace(tree, &n, values[by%len(values)]))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func count(tree any) int {
	n := 1
	switch tree := tree.(type) {
	case []any:
		for _, v := range tree {
			n += count(v)
		}
	case map[string]any:
		for _, v := range tree {
			n += count(v)
		}
	}
	return n
}

func replace(tree any, n *int, by any) any {
	if *n--; *n < 0 {
		return by
	}
	switch tree := tree.(type) {
	case []any:
		for i, v := range tree {
			if *n >= 0 {
				tree[i] = replace(v, n, by)
			}
		}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(tree)) {
			if *n >= 0 {
				tree[k] = replace(tree[k], n, by)
			}
		}
	}
	return tree
}
