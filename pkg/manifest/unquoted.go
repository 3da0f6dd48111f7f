package manifest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// textFields are those fields of the objects whose values, by keys that people choose, are all text.
var textFields = [][]string{{"metadata", "annotations"}, {"metadata", "labels"}, {"spec", "nodeSelector"}, {"spec", "selector"}}

// unquoted finds what stands among an object's labels and annotations without quotes and is a number or a truth value
// because of that: the decoder's own error does not say where. It tells whether there was any.
func (d *decoder) unquoted(doc document, value []byte, kind string) bool {
	var name string
	// One without a name, or with a wrong one, is told by its kind.
	if json.Unmarshal(inside(value, "metadata", "name"), &name) == nil && name != "" {
		kind += " " + name
	}
	found := false
	for _, field := range textFields {
		var values map[string]json.RawMessage
		if json.Unmarshal(inside(value, field...), &values) != nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			raw := string(values[key])
			if !strings.ContainsAny(raw[:1], "-0123456789tf") {
				continue
			}
			found = true
			d.Fatal(keyLine(doc, key), "%s: %s[%q]: %s is no text as it stands: put the value in quotes", kind, strings.Join(field, "."), key, raw)
		}
	}
	return found
}

// inside gives the value at a path of fields, nil where there is none.
func inside(value json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(value, &fields) != nil {
			return nil
		}
		value = fields[name]
	}
	return value
}
