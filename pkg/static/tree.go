package static

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// maxDepth bounds how deep the values of a file may be nested.
const maxDepth = 200

// problem is why a document cannot be read, and where.
type problem struct {
	line   int
	reason string
}

// documents gives the documents of a file as trees that know their lines, and
// why the rest of the file cannot be read, if so.
func documents(isJSON bool, data []byte) ([]*yaml.Node, *problem) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if isJSON {
		return jsonDocuments(data)
	}
	var out []*yaml.Node
	for decoder := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var document yaml.Node
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return out, yamlProblem(err)
		}
		out = append(out, document.Content...)
	}
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

func yamlProblem(err error) *problem {
	reason := bytes.TrimPrefix([]byte(err.Error()), []byte("yaml: "))
	at := yamlLine.FindSubmatchIndex(reason)
	if at == nil {
		return &problem{1, string(reason)}
	}
	line, err := strconv.Atoi(string(reason[at[2]:at[3]]))
	if err != nil {
		line = 1
	}
	return &problem{max(line, 1), string(reason[:at[0]]) + string(reason[at[1]:])}
}

// jsonReader makes of JSON the trees that YAML gives. YAML's own reader would
// take most of JSON, but not tabs.
type jsonReader struct {
	data    []byte
	decoder *json.Decoder
	// line is that of the offset up to which lines were counted.
	line, counted int
}

func jsonDocuments(data []byte) ([]*yaml.Node, *problem) {
	r := &jsonReader{data: data, decoder: json.NewDecoder(bytes.NewReader(data)), line: 1}
	r.decoder.UseNumber()
	var out []*yaml.Node
	for {
		n, err := r.value(0)
		switch {
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(data[min(int(r.decoder.InputOffset()), len(data)):])) == 0 && n == nil:
			return out, nil
		case err != nil:
			return out, &problem{r.at(err), err.Error()}
		}
		out = append(out, n)
	}
}

// at is the line of an error.
func (r *jsonReader) at(err error) int {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return 1 + bytes.Count(r.data[:min(max(int(syntax.Offset), 0), len(r.data))], []byte("\n"))
	}
	return r.here()
}

// here is the line of the token read last.
func (r *jsonReader) here() int {
	offset := min(int(r.decoder.InputOffset()), len(r.data))
	r.line += bytes.Count(r.data[r.counted:offset], []byte("\n"))
	r.counted = offset
	return r.line
}

// value reads one value. It gives nil and io.EOF where none begins.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	token, err := r.decoder.Token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Line: r.here(), Kind: yaml.ScalarNode}
	switch t := token.(type) {
	case json.Delim:
		if n.Kind = yaml.SequenceNode; t == '{' {
			n.Kind = yaml.MappingNode
		}
		if err := r.content(n, depth); err != nil {
			return n, err
		}
	case string:
		n.Tag, n.Value = "!!str", t
	case json.Number:
		n.Tag, n.Value = "!!float", t.String()
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case nil:
		n.Tag = "!!null"
	}
	return n, nil
}

// content reads what an object (keys and values by turns) or a list holds.
func (r *jsonReader) content(n *yaml.Node, depth int) error {
	for r.decoder.More() {
		// A key is read as a value; the decoder lets nothing else stand there.
		child, err := r.value(depth + 1)
		if err != nil {
			return unexpected(err)
		}
		n.Content = append(n.Content, child)
	}
	_, err := r.decoder.Token() // the end
	return unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
