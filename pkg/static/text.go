package static

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxText bounds what one resource may come to: aliases can make much of little.
const maxText = 32 << 20

// text is a tree written as JSON in which every value stands on the line that
// it has in the file, counted from the line of the tree's root. So a line that
// the JSON decoder names leads back to the file.
type text struct {
	out []byte
	// line is the file's line that the end of out is on.
	line int
	// keys are the keys of all mappings, in order.
	keys []keyAt
}

// keyAt is a key of a mapping and where in the text it begins.
type keyAt struct {
	offset  int
	mapping *yaml.Node
	index   int // of the key in the mapping's Content
}

// write gives the text of a tree. The error's line is the file's.
func write(root *yaml.Node) (*text, *problem) {
	t := &text{line: root.Line}
	if p := t.node(root, 0); p != nil {
		return nil, p
	}
	return t, nil
}

// node writes n, on its own line unless that is past: what an alias stands for
// has a line of its own, before the alias.
func (t *text) node(n *yaml.Node, depth int) *problem {
	for ; t.line < n.Line && n.Kind != yaml.AliasNode; t.line++ {
		t.out = append(t.out, '\n')
	}
	switch {
	case depth > maxDepth:
		return &problem{t.line, fmt.Sprintf("nested deeper than %d", maxDepth)}
	case len(t.out) > maxText:
		return &problem{t.line, fmt.Sprintf("comes to more than %d bytes", maxText)}
	}
	switch n.Kind {
	case yaml.AliasNode:
		return t.node(n.Alias, depth+1)
	case yaml.MappingNode:
		return t.mapping(n, depth)
	case yaml.SequenceNode:
		t.out = append(t.out, '[')
		for i, child := range n.Content {
			if i > 0 {
				t.out = append(t.out, ',')
			}
			if p := t.node(child, depth+1); p != nil {
				return p
			}
		}
		t.out = append(t.out, ']')
		return nil
	case yaml.ScalarNode, yaml.DocumentNode:
	}
	out, err := scalar(n)
	if err != nil {
		return &problem{t.line, err.Error()}
	}
	t.out = append(t.out, out...)
	return nil
}

func (t *text) mapping(n *yaml.Node, depth int) *problem {
	t.out = append(t.out, '{')
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			return &problem{max(key.Line, 1), "a key that is no text"}
		case key.ShortTag() == "!!merge":
			return &problem{max(key.Line, 1), "merge keys (<<) are not supported"}
		}
		if i > 0 {
			t.out = append(t.out, ',')
		}
		for ; t.line < key.Line; t.line++ {
			t.out = append(t.out, '\n')
		}
		t.keys = append(t.keys, keyAt{len(t.out), n, i})
		t.out = append(append(t.out, quote(key.Value)...), ':')
		if p := t.node(n.Content[i+1], depth+1); p != nil {
			return p
		}
	}
	t.out = append(t.out, '}')
	return nil
}

// scalar writes a plain value as JSON: YAML has more ways to write numbers.
func scalar(n *yaml.Node) ([]byte, error) {
	switch n.ShortTag() {
	case "!!null":
		return []byte("null"), nil
	case "!!bool":
		var b bool
		err := n.Decode(&b)
		return strconv.AppendBool(nil, b), err
	case "!!int", "!!float":
		return number(n)
	}
	return quote(n.Value), nil
}

func number(n *yaml.Node) ([]byte, error) {
	if json.Valid([]byte(n.Value)) {
		return []byte(n.Value), nil
	}
	var signed int64
	var unsigned uint64
	var float float64
	integer := n.ShortTag() == "!!int"
	switch {
	case integer && n.Decode(&signed) == nil:
		return strconv.AppendInt(nil, signed, 10), nil
	case integer && n.Decode(&unsigned) == nil:
		return strconv.AppendUint(nil, unsigned, 10), nil
	case n.Decode(&float) != nil:
		return nil, errors.New("a number that cannot be read: " + strconv.Quote(n.Value))
	case math.IsNaN(float):
		return []byte(`"NaN"`), nil // as ProtoJSON writes them
	case math.IsInf(float, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(float, -1):
		return []byte(`"-Infinity"`), nil
	}
	return strconv.AppendFloat(nil, float, 'g', -1, 64), nil
}

func quote(s string) []byte {
	out, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("marshal a string: %v", err))
	}
	return out
}
