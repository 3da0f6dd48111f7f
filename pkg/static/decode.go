package static

import (
	"bytes"
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/freshmesh/freshmesh/pkg/directory"
	_ "github.com/freshmesh/freshmesh/pkg/envoytypes" // what a resource can be of
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

const (
	typePrefix   = "type.googleapis.com/"
	wrapperType  = "envoy.service.discovery.v3.Resource"
	responseType = "envoy.service.discovery.v3.DiscoveryResponse"
	typeKey      = "@type"
	// maxIgnored bounds the unknown fields of one resource: each costs a pass.
	maxIgnored = 20
)

// parse decodes one file. It never fails as a whole: the good resources stand
// beside the findings.
func parse(name string, data []byte) directory.Content[mesh.ResourceName, mesh.Resource] {
	var d decoder
	docs, p := documents(filepath.Ext(name) == ".json", data)
	for _, doc := range docs {
		d.document(doc)
	}
	if p != nil {
		d.findings.Fatal(p.line, "%s", p.reason)
	}
	d.content.Findings = d.findings.All
	return d.content
}

// decoder collects what one file gives.
type decoder struct {
	content  directory.Content[mesh.ResourceName, mesh.Resource]
	findings directory.Findings
}

// document takes one document: a DiscoveryResponse, or one resource.
func (d *decoder) document(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return
	}
	if n.Kind != yaml.MappingNode {
		d.findings.Fatal(n.Line, "neither a resource (with %q) nor a DiscoveryResponse (with resources)", typeKey)
		return
	}
	typ, resources := value(n, typeKey), value(n, "resources")
	switch {
	case typ == nil && resources == nil, typ != nil && path(typ.Value) == responseType && resources == nil:
		d.findings.Fatal(n.Line, "neither a resource (with %q) nor a DiscoveryResponse (with resources)", typeKey)
	case typ != nil && path(typ.Value) != responseType:
		d.resource(n)
	case resources.Kind != yaml.SequenceNode:
		d.findings.Fatal(resources.Line, "resources: not a list")
	default:
		d.others(n)
		for _, r := range resources.Content {
			d.resource(r)
		}
	}
}

// others complains of what a DiscoveryResponse does not have.
func (d *decoder) others(n *yaml.Node) {
	fields := (&discoveryv3.DiscoveryResponse{}).ProtoReflect().Descriptor().Fields()
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		name := protoreflect.Name(key.Value)
		if key.Value != typeKey && fields.ByName(name) == nil && fields.ByJSONName(key.Value) == nil {
			d.findings.Warn(key.Line, "DiscoveryResponse: unknown field %q, ignored", key.Value)
		}
	}
}

// value gives the value of a mapping's key, or nil.
func value(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			if v := n.Content[i+1]; v.Kind == yaml.AliasNode {
				return v.Alias
			}
			return n.Content[i+1]
		}
	}
	return nil
}

// path is the message name in a type URL.
func path(url string) string { return url[strings.LastIndexByte(url, '/')+1:] }

// resource takes one message with "@type".
func (d *decoder) resource(n *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	message := d.message(n)
	if message == nil {
		return
	}
	name := ""
	if wrapper, ok := message.(*discoveryv3.Resource); ok {
		inner, err := wrapper.GetResource().UnmarshalNew()
		if err != nil {
			d.findings.Fatal(n.Line, "%s: resource: %s", wrapperType, directory.OneLine(err))
			return
		}
		name, message = wrapper.GetName(), inner
	}
	kind := message.ProtoReflect().Descriptor().FullName()
	if name = cmp.Or(name, nameOf(message)); name == "" {
		d.findings.Fatal(n.Line, "%s: no name; a message that has none of its own stands in a %s", kind, wrapperType)
		return
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
	if err != nil {
		d.findings.Fatal(n.Line, "%s %s: %s", kind, name, directory.OneLine(err))
		return
	}
	r := mesh.Resource{Type: mesh.Type(typePrefix + kind), Name: name, Body: body, FollowedBy: followers(message)}
	d.content.Items = append(d.content.Items, directory.Item[mesh.ResourceName, mesh.Resource]{
		Key: mesh.ResourceName{Type: r.Type, Name: name}, Line: n.Line, Value: r,
	})
}

// message decodes a tree, without the fields that its message does not have;
// nil, with a finding, if it cannot be decoded.
func (d *decoder) message(n *yaml.Node) proto.Message {
	typ := value(n, typeKey)
	if n.Kind != yaml.MappingNode || typ == nil {
		d.findings.Fatal(n.Line, "a resource without %q", typeKey)
		return nil
	}
	for ignored := 0; ; ignored++ {
		t, p := write(n)
		if p != nil {
			d.findings.Fatal(p.line, "%s: %s", path(typ.Value), p.reason)
			return nil
		}
		var a anypb.Any
		err := protojson.Unmarshal(t.out, &a)
		if err == nil {
			m, err := a.UnmarshalNew()
			if err != nil {
				d.findings.Fatal(n.Line, "%s: %s", path(typ.Value), directory.OneLine(err))
				return nil
			}
			return m
		}
		at := locate(err)
		if at.unknownField == "" || ignored == maxIgnored || !t.drop(at) {
			d.findings.Fatal(n.Line+at.line-1, "%s: %s", path(typ.Value), at.reason)
			return nil
		}
		d.findings.Warn(n.Line+at.line-1, "%s: %s, ignored", path(typ.Value), at.reason)
	}
}

// location is what a protojson error says.
type location struct {
	line, column int
	reason       string
	// unknownField is the field's name where that is what is wrong.
	unknownField string
}

var (
	jsonPosition = regexp.MustCompile(`\(line (\d+):(\d+)\): `)
	unknownField = regexp.MustCompile(`^unknown field ("(?:[^"\\]|\\.)*")$`)
	// badText: what stands in a text or bytes field may be a key, and reasons
	// are logged and shown.
	badText    = regexp.MustCompile(`^(invalid value for (?:bytes|string) field \S+): .*`)
	unresolved = regexp.MustCompile(`unable to resolve ("(?:[^"\\]|\\.)*"): .*`)
)

func locate(err error) location {
	reason := directory.OneLine(err)
	at := location{line: 1, column: 1, reason: strings.TrimPrefix(reason, "proto: ")}
	if m := jsonPosition.FindStringSubmatchIndex(reason); m != nil {
		at.line, _ = strconv.Atoi(reason[m[2]:m[3]])
		at.column, _ = strconv.Atoi(reason[m[4]:m[5]])
		at.reason = reason[m[1]:]
	}
	if m := unknownField.FindStringSubmatch(at.reason); m != nil {
		at.unknownField = cmp.Or(unquote(m[1]), "?")
	}
	at.reason = badText.ReplaceAllString(at.reason, "$1")
	at.reason = unresolved.ReplaceAllString(at.reason, "type $1 is unknown")
	return at
}

func unquote(s string) string {
	out, err := strconv.Unquote(s)
	if err != nil {
		return ""
	}
	return out
}

// drop takes the field at a place out of the tree that t was written from.
func (t *text) drop(at location) bool {
	offset := 0
	for range at.line - 1 {
		i := bytes.IndexByte(t.out[offset:], '\n')
		if i < 0 {
			return false
		}
		offset += i + 1
	}
	for i := range string(t.out[offset:]) {
		if at.column--; at.column == 0 {
			offset += i
			break
		}
	}
	i, ok := slices.BinarySearchFunc(t.keys, offset, func(k keyAt, offset int) int { return cmp.Compare(k.offset, offset) })
	if !ok {
		return false
	}
	k := t.keys[i]
	k.mapping.Content = slices.Delete(k.mapping.Content, k.index, k.index+2)
	return true
}

// nameOf is the name that the message itself has; "" for none.
func nameOf(m proto.Message) string {
	r := m.ProtoReflect()
	for _, field := range []protoreflect.Name{"name", "cluster_name"} {
		f := r.Descriptor().Fields().ByName(field)
		if f != nil && f.Kind() == protoreflect.StringKind && !f.IsList() {
			return r.Get(f).String()
		}
	}
	return ""
}

// followers names the assignment that a changed cluster waits for ("Resource warming").
func followers(m proto.Message) []mesh.ResourceName {
	c, ok := m.(*clusterv3.Cluster)
	if !ok || c.GetType() != clusterv3.Cluster_EDS {
		return nil
	}
	return []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: cmp.Or(c.GetEdsClusterConfig().GetServiceName(), c.GetName())}}
}
