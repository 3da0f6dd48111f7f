package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/freshmesh/freshmesh/pkg/directory"
)

// maxListDepth bounds a List within a List.
const maxListDepth = 4

// document is one document of a file, as JSON or YAML text.
type document struct {
	// line is the file's line, from 1, on which text begins.
	line int
	// number counts the file's documents that are not empty, from 1.
	number int
	text   []byte
}

// begin is the line of the document's first content.
func (d document) begin() int {
	n := d.line
	for line := range bytes.Lines(d.text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return n
		}
		n++
	}
	return d.line
}

// decoded is one API object of a file.
type decoded struct {
	line   int
	object runtime.Object
}

// decode gives the objects of the kinds that the mesh reads, in the order of
// the file, and what is wrong with the file. The name decides between JSON and
// YAML by its ending. It never fails as a whole: the good documents stand
// beside the findings.
func decode(name string, data []byte) ([]decoded, directory.Findings) {
	d := &decoder{}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if filepath.Ext(name) == ".json" {
		d.json(data)
	} else {
		for _, doc := range splitYAML(data) {
			d.yaml(doc)
		}
	}
	return d.objects, d.Findings
}

// decoder collects what one file gives.
type decoder struct {
	directory.Findings
	objects []decoded
	// documents counts those that are not empty.
	documents int
}

// json reads JSON values one after the other, as "kubectl get -o json" prints them.
func (d *decoder) json(data []byte) {
	values := json.NewDecoder(bytes.NewReader(data))
	line, counted := 1, 0
	lineAt := func(offset int) int {
		offset = min(max(offset, counted), len(data))
		line += bytes.Count(data[counted:offset], []byte("\n"))
		counted = offset
		return line
	}
	for {
		var value json.RawMessage
		err := values.Decode(&value)
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			at := len(data)
			if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
				at = int(syntax.Offset)
			}
			d.Fatal(lineAt(at), "%s", directory.OneLine(err))
			return
		}
		end := int(values.InputOffset())
		d.documents++
		d.value(document{line: lineAt(end - len(value)), number: d.documents, text: value}, value, 0)
	}
}

// yaml reads one YAML document.
func (d *decoder) yaml(doc document) {
	if isPreamble(doc.text) {
		return
	}
	d.documents++
	doc.number = d.documents
	value, err := yaml.YAMLToJSONStrict(doc.text)
	if err != nil {
		line, reason := yamlError(doc, err)
		d.Fatal(line, "%s", reason)
		return
	}
	if string(value) == "null" {
		return
	}
	d.value(doc, value, 0)
}

// value takes one object, or the items of a list. doc is where it stands.
func (d *decoder) value(doc document, value []byte, depth int) {
	var head struct {
		metav1.TypeMeta
		Items []json.RawMessage `json:"items"`
	}
	if string(value) == "null" {
		return
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &head.TypeMeta); err != nil {
		d.Fatal(doc.begin(), "not a Kubernetes object: %s", directory.OneLine(err))
		return
	}
	if head.Kind == "" || head.APIVersion == "" {
		d.Fatal(doc.begin(), "not a Kubernetes object: it needs both kind and apiVersion")
		return
	}
	item, isList := listOf(head.TypeMeta)
	if !isList {
		d.object(doc, value, head.TypeMeta)
		return
	}
	if depth == maxListDepth {
		d.Fatal(doc.begin(), "lists within lists deeper than %d", maxListDepth)
		return
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(value, &head); err != nil {
		d.Fatal(doc.begin(), "%s: %s", head.Kind, directory.OneLine(err))
		return
	}
	for _, raw := range head.Items {
		d.value(doc, withType(raw, item), depth+1)
	}
}

// object takes one object of a kind that the mesh reads, and nothing of others.
func (d *decoder) object(doc document, value []byte, t metav1.TypeMeta) {
	o := newObject(t)
	if o == nil {
		d.notRead(doc, t)
		return
	}
	strict, err := kjson.UnmarshalStrict(value, o)
	if err != nil {
		if !d.unquoted(doc, value, t.Kind) {
			d.Fatal(doc.begin(), "%s: %s", t.Kind, directory.OneLine(err))
		}
		return
	}
	o.SetUID("")
	o.SetResourceVersion("")
	for _, err := range strict {
		d.Warn(fieldLine(doc, err), "%s %s: %s, ignored", t.Kind, o.GetName(), directory.OneLine(err))
	}
	d.objects = append(d.objects, decoded{line: doc.begin(), object: o})
}

// listOf tells whether t is a list that can hold kinds that the mesh reads,
// and the type that its items have when they do not say; zero for any.
func listOf(t metav1.TypeMeta) (metav1.TypeMeta, bool) {
	if t.Kind == "List" && t.APIVersion == "v1" {
		return metav1.TypeMeta{}, true
	}
	kind, ok := strings.CutSuffix(t.Kind, "List")
	if !ok || versionOf(kind) != t.APIVersion {
		return metav1.TypeMeta{}, false
	}
	return metav1.TypeMeta{Kind: kind, APIVersion: t.APIVersion}, true
}

// withType gives an item of a typed list the type that it may leave out.
func withType(item json.RawMessage, t metav1.TypeMeta) []byte {
	var fields map[string]json.RawMessage
	if t.Kind == "" || json.Unmarshal(item, &fields) != nil || fields == nil {
		return item
	}
	if _, ok := fields["kind"]; !ok {
		fields["kind"] = json.RawMessage(strconv.Quote(t.Kind))
	}
	if _, ok := fields["apiVersion"]; !ok {
		fields["apiVersion"] = json.RawMessage(strconv.Quote(t.APIVersion))
	}
	typed, err := json.Marshal(fields)
	if err != nil {
		return item
	}
	return typed
}

// splitYAML cuts a stream at its document markers (YAML 1.2, section 9.2).
// Text that stands on the marker's own line belongs to the document it begins.
func splitYAML(data []byte) []document {
	var docs []document
	doc := document{line: 1}
	start, line := 0, 0
	for at := 0; at < len(data); {
		end := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			end = at + i + 1
		}
		line++
		if isMarker(data[at:end]) {
			doc.text = data[start:at]
			docs = append(docs, doc)
			doc, start = document{line: line}, at+len("---")
		}
		at = end
	}
	doc.text = data[start:]
	return append(docs, doc)
}

// isPreamble tells whether a document is nothing but directives, comments and blank lines.
func isPreamble(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '%' && line[0] != '#' {
			return false
		}
	}
	return true
}

// isMarker tells whether a line begins or ends a document.
func isMarker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || line[3] == ' ' || line[3] == '\t' || line[3] == '\r' || line[3] == '\n'
}

var yamlLine = regexp.MustCompile(`line (\d+): `)

// yamlError gives the file's line, and the reason without the line, of an
// error that speaks of the document's lines.
func yamlError(doc document, err error) (line int, reason string) {
	reason = strings.NewReplacer(
		"error converting YAML to JSON: ", "", "yaml: ", "", "unmarshal errors: ", "",
	).Replace(directory.OneLine(err))
	at := yamlLine.FindStringSubmatchIndex(reason)
	if at == nil {
		return doc.line, reason
	}
	n, err := strconv.Atoi(reason[at[2]:at[3]])
	if err != nil {
		return doc.line, reason
	}
	return doc.line + max(n, 1) - 1, reason[:at[0]] + reason[at[1]:]
}

var quotedField = regexp.MustCompile(`field "(?:.*\.)?([^."\[\]]+)"$`)

// fieldLine is the line of the field that a strict error names: the first line
// of the document with a key of that name, else its first content.
func fieldLine(doc document, err error) int {
	name := quotedField.FindStringSubmatch(err.Error())
	if name == nil {
		return doc.begin()
	}
	return keyLine(doc, name[1])
}

// keyLine is the first line of the document with a key of that name, else its first content.
func keyLine(doc document, name string) int {
	key, err := regexp.Compile(`(?m)(?:^|[\s{,-])["']?` + regexp.QuoteMeta(name) + `["']?\s*:`)
	if err != nil {
		return doc.begin()
	}
	at := key.FindIndex(doc.text)
	if at == nil {
		return doc.begin()
	}
	colon := at[1] - 1
	return doc.line + bytes.Count(doc.text[:colon], []byte("\n"))
}
