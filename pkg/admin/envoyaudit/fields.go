package envoyaudit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// maxFields bounds the fields of one difference.
	maxFields = 10
	// maxText bounds the text of one value, in runes.
	maxText = 120
	// redacted stands in Envoy's dumps where the API marks a field as sensitive.
	redacted = "[redacted]"
)

// fields gives the fields in which two messages differ, at most maxFields.
func fields(want, has proto.Message) []Field {
	var w walk
	w.message("", want.ProtoReflect(), has.ProtoReflect())
	return w.found
}

// walk collects differences.
type walk struct{ found []Field }

func (w *walk) add(path, want, has string) {
	if len(w.found) < maxFields {
		w.found = append(w.found, Field{Path: path, Want: cut(want), Has: cut(has)})
	}
}

func cut(text string) string {
	if r := []rune(text); len(r) > maxText {
		return string(r[:maxText-1]) + "…"
	}
	return text
}

func (w *walk) message(path string, want, has protoreflect.Message) {
	if want.Descriptor().FullName() != has.Descriptor().FullName() {
		w.add(orRoot(path), string(want.Descriptor().FullName()), string(has.Descriptor().FullName()))
		return
	}
	wantAny, ok := want.Interface().(*anypb.Any)
	if hasAny, both := has.Interface().(*anypb.Any); ok && both {
		w.any(path, wantAny, hasAny)
		return
	}
	if plain(want.Descriptor()) {
		if !proto.Equal(want.Interface(), has.Interface()) {
			w.add(path, messageText(want.Interface()), messageText(has.Interface()))
		}
		return
	}
	list := want.Descriptor().Fields()
	for i := range list.Len() {
		f := list.Get(i)
		at := join(path, string(f.Name()))
		switch wantSet, hasSet := want.Has(f), has.Has(f); {
		case wantSet && hasSet, (wantSet || hasSet) && (f.IsMap() || f.IsList()):
			w.field(at, f, want.Get(f), has.Get(f))
		case wantSet:
			w.add(at, text(f, want.Get(f)), "")
		case hasSet:
			w.add(at, "", text(f, has.Get(f)))
		}
	}
}

// plain tells messages that people read as one value.
func plain(d protoreflect.MessageDescriptor) bool {
	switch d.FullName() {
	case "google.protobuf.Duration", "google.protobuf.Timestamp":
		return true
	}
	return d.ParentFile().Path() == "google/protobuf/wrappers.proto"
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func orRoot(path string) string {
	if path == "" {
		return "@type"
	}
	return path
}

// any looks into both where they hold one known type.
func (w *walk) any(path string, want, has *anypb.Any) {
	if want.GetTypeUrl() == has.GetTypeUrl() && bytes.Equal(want.GetValue(), has.GetValue()) {
		return
	}
	wantIn, err := want.UnmarshalNew()
	hasIn, err2 := has.UnmarshalNew()
	if err != nil || err2 != nil {
		w.add(orRoot(path), want.GetTypeUrl(), has.GetTypeUrl())
		return
	}
	w.message(path, wantIn.ProtoReflect(), hasIn.ProtoReflect())
}

func (w *walk) field(path string, f protoreflect.FieldDescriptor, want, has protoreflect.Value) {
	switch {
	case f.IsMap():
		w.maps(path, f, want.Map(), has.Map())
	case f.IsList():
		w.lists(path, f, want.List(), has.List())
	default:
		w.value(path, f, want, has)
	}
}

// value compares what is no list and no map, or an element of one.
func (w *walk) value(path string, f protoreflect.FieldDescriptor, want, has protoreflect.Value) {
	if f.Message() != nil {
		w.message(path, want.Message(), has.Message())
		return
	}
	if want.Equal(has) || text(f, has) == redacted {
		return
	}
	w.add(path, text(f, want), text(f, has))
}

func (w *walk) maps(path string, f protoreflect.FieldDescriptor, want, has protoreflect.Map) {
	keys := map[string]protoreflect.MapKey{}
	collect := func(k protoreflect.MapKey, _ protoreflect.Value) bool { keys[k.String()] = k; return true }
	want.Range(collect)
	has.Range(collect)
	for _, name := range sortedKeys(keys) {
		w.pair(fmt.Sprintf("%s[%s]", path, name), f.MapValue(), want.Get(keys[name]), has.Get(keys[name]))
	}
}

func (w *walk) lists(path string, f protoreflect.FieldDescriptor, want, has protoreflect.List) {
	wantNames, ok := names(f, want)
	hasNames, both := names(f, has)
	if !ok || !both {
		for i := range max(want.Len(), has.Len()) {
			w.pair(fmt.Sprintf("%s[%d]", path, i), f, element(want, i), element(has, i))
		}
		return
	}
	for i, name := range wantNames {
		w.pair(fmt.Sprintf("%s[%s]", path, name), f, element(want, i), element(has, slices.Index(hasNames, name)))
	}
	for i, name := range hasNames {
		if !slices.Contains(wantNames, name) {
			w.pair(fmt.Sprintf("%s[%s]", path, name), f, protoreflect.Value{}, element(has, i))
		}
	}
	if len(w.found) == 0 && !slices.Equal(wantNames, hasNames) {
		w.add(path, strings.Join(wantNames, ", "), strings.Join(hasNames, ", "))
	}
}

// pair compares two elements, each of which may be absent.
func (w *walk) pair(path string, f protoreflect.FieldDescriptor, want, has protoreflect.Value) {
	switch {
	case want.IsValid() && has.IsValid():
		w.value(path, f, want, has)
	case want.IsValid():
		w.add(path, text(f, want), "")
	case has.IsValid():
		w.add(path, "", text(f, has))
	}
}

func element(l protoreflect.List, i int) protoreflect.Value {
	if i < 0 || i >= l.Len() {
		return protoreflect.Value{}
	}
	return l.Get(i)
}

// names gives the names of a list's elements; false when they have none, or share one.
func names(f protoreflect.FieldDescriptor, l protoreflect.List) ([]string, bool) {
	if f.Message() == nil {
		return nil, false
	}
	name := f.Message().Fields().ByName("name")
	if name == nil || name.Kind() != protoreflect.StringKind || name.IsList() {
		return nil, false
	}
	out := make([]string, 0, l.Len())
	seen := map[string]bool{}
	for i := range l.Len() {
		n := l.Get(i).Message().Get(name).String()
		if n == "" || seen[n] {
			return nil, false
		}
		seen[n] = true
		out = append(out, n)
	}
	return out, true
}

// text is a value for people, without the spaces that protojson varies on purpose.
func text(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch {
	case f.IsMap() && isMap(v), f.IsList() && isList(v):
		return "something"
	case f.Message() != nil:
		return messageText(v.Message().Interface())
	case f.Enum() != nil:
		if d := f.Enum().Values().ByNumber(v.Enum()); d != nil {
			return string(d.Name())
		}
	case f.Kind() == protoreflect.BytesKind:
		return string(v.Bytes())
	}
	return v.String()
}

func isMap(v protoreflect.Value) bool  { _, ok := v.Interface().(protoreflect.Map); return ok }
func isList(v protoreflect.Value) bool { _, ok := v.Interface().(protoreflect.List); return ok }

func messageText(m proto.Message) string {
	raw, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err.Error()
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err.Error()
	}
	if text, quoted := strings.CutPrefix(b.String(), `"`); quoted {
		return strings.TrimSuffix(text, `"`) // a Duration, say
	}
	return b.String()
}
