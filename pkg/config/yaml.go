package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file; a larger one is some other file.
const maxFileBytes = 1 << 20

// readFile applies a YAML file. Each error names the file, the line and the key.
func (t *table) readFile(path string) []error {
	if err := existingFile(path); err != nil {
		return []error{fmt.Errorf("--config: %w", err)}
	}
	file, err := os.Open(path)
	if err != nil {
		return []error{fmt.Errorf("--config: %w", readError(path, err))}
	}
	defer file.Close() // read only: nothing can be lost
	data, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return []error{fmt.Errorf("--config: %w", readError(path, err))}
	}
	if len(data) > maxFileBytes {
		return []error{fmt.Errorf("--config: %s: larger than %d bytes", path, maxFileBytes)}
	}
	return t.readYAML(path, data)
}

// readYAML applies one YAML document; an empty one sets nothing.
func (t *table) readYAML(path string, data []byte) []error {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return []error{fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))}
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return []error{fmt.Errorf("%s: holds more than one YAML document", path)}
	}
	r := reader{table: t, path: path, seen: map[string]int{}}
	r.node("", document.Content[0])
	return r.wrong
}

// reader walks one document.
type reader struct {
	table *table
	path  string
	seen  map[string]int // key → line of its first value
	wrong []error
}

func (r *reader) fail(line int, key, format string, args ...any) {
	at := fmt.Sprintf("%s:%d: ", r.path, line)
	if key != "" {
		at += key + ": "
	}
	r.wrong = append(r.wrong, fmt.Errorf(at+"%w", fmt.Errorf(format, args...)))
}

// node handles the value at key: a setting's value, or a mapping that leads to settings.
func (r *reader) node(key string, n *yaml.Node) {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		r.fail(n.Line, key, "anchors and aliases are not supported")
		return
	}
	if f := r.lookup(key); f != nil {
		r.value(f, n)
		return
	}
	if n.Kind == yaml.MappingNode && (key == "" || r.leads(key)) {
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			if key != "" {
				name = key + "." + name
			}
			r.node(name, n.Content[i+1])
		}
		return
	}
	switch {
	case n.Tag == "!!null" && (key == "" || r.leads(key)):
		// Only comments below the key, or in the file: sets nothing.
	case key == "" || r.leads(key):
		r.fail(n.Line, key, "must be a mapping of settings")
	default:
		r.fail(n.Line, key, "unknown key")
	}
}

func (r *reader) lookup(key string) *field {
	for _, f := range r.table.fields {
		if f.key() == key {
			return f
		}
	}
	return nil
}

// leads tells whether some setting's key lies below key.
func (r *reader) leads(key string) bool {
	for _, f := range r.table.fields {
		if strings.HasPrefix(f.key(), key+".") {
			return true
		}
	}
	return false
}

// value sets f from a scalar, or from a sequence of scalars where f is a list. Null sets nothing.
func (r *reader) value(f *field, n *yaml.Node) {
	if line, twice := r.seen[f.key()]; twice {
		r.fail(n.Line, f.key(), "already set in line %d", line)
		return
	}
	r.seen[f.key()] = n.Line
	var texts []string
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!null":
		return
	case n.Kind == yaml.ScalarNode:
		texts = []string{n.Value}
	case n.Kind == yaml.SequenceNode && f.list:
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				r.fail(item.Line, f.key(), "must be a list of texts")
				return
			}
			texts = append(texts, item.Value)
		}
	case f.list:
		r.fail(n.Line, f.key(), "must be a text or a list of texts")
		return
	default:
		r.fail(n.Line, f.key(), "must be a single value")
		return
	}
	if err := f.take(fmt.Sprintf("%s:%d: %s", r.path, n.Line, f.key()), texts); err != nil {
		r.wrong = append(r.wrong, err)
	}
}

// yaml gives the settings in force, in the order of the table, with each
// setting's origin beside it where that is not the default. Reading it back gives the same settings.
func (t *table) yaml() (string, error) {
	root := &yaml.Node{Kind: yaml.MappingNode}
	groups := map[string]*yaml.Node{"": root} // first part of a key → its mapping
	for _, f := range t.fields {
		group, name, nested := strings.Cut(f.key(), ".")
		if !nested {
			group, name = "", f.key()
		}
		if groups[group] == nil {
			groups[group] = &yaml.Node{Kind: yaml.MappingNode}
			root.Content = append(root.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: group}, groups[group])
		}
		groups[group].Content = append(groups[group].Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, f.yamlValue())
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		return "", fmt.Errorf("write configuration: %w", err)
	}
	return out.String(), nil
}

func (f *field) yamlValue() *yaml.Node {
	node := func(text string) *yaml.Node {
		n := &yaml.Node{Kind: yaml.ScalarNode, Value: text}
		if !f.plain {
			n.Tag = "!!str" // quoted where it would read as something else
		}
		return n
	}
	var n *yaml.Node
	if f.list {
		n = &yaml.Node{Kind: yaml.SequenceNode}
		for _, text := range f.get() {
			n.Content = append(n.Content, node(text))
		}
		if len(n.Content) == 0 {
			n.Style = yaml.FlowStyle
		}
	} else {
		n = node(f.get()[0])
	}
	if f.origin != originDefault && !f.list {
		n.LineComment = f.origin
	}
	return n
}
