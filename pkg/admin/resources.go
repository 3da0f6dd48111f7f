package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	_ "github.com/freshmesh/freshmesh/pkg/envoytypes" // what can be decoded
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Resources is the body of GET /resources.
type Resources struct {
	// Type is the short name, or the type URL; TypeURL always the latter.
	Type      string      `json:"type"`
	TypeURL   mesh.Type   `json:"typeURL"`
	Node      mesh.NodeID `json:"node,omitempty"`
	Resources []Shown     `json:"resources"`
}

// Shown is one resource. It has either Body or BodyBase64, or neither for a
// secret, whose contents are shown to nobody but the nodes.
type Shown struct {
	Name      string       `json:"name"`
	Version   mesh.Version `json:"version"`
	ChangedAt time.Time    `json:"changedAt"`
	Cause     string       `json:"cause,omitempty"`
	// Body is the message as protojson has it.
	Body json.RawMessage `json:"body,omitempty"`
	// BodyBase64 is the serialised message where it cannot be decoded, for the reason in Undecoded.
	BodyBase64 []byte `json:"bodyBase64,omitempty"`
	Undecoded  string `json:"undecoded,omitempty"`
}

func (s *Server) resources(w http.ResponseWriter, r *http.Request) {
	values, ok := s.query(w, r, "type", "name", "node")
	if !ok {
		return
	}
	typ, ok := mesh.ParseType(values.Get("type"))
	if !ok {
		s.fail(w, http.StatusBadRequest, fmt.Sprintf("type %q: one of cds, eds, lds, rds, or a type URL", values.Get("type")))
		return
	}
	q := Query{Type: typ, Name: values.Get("name"), Node: mesh.NodeID(values.Get("node"))}
	found, err := s.cfg.Store.Resources(r.Context(), q)
	if err != nil {
		s.failWith(w, r, err)
		return
	}
	body := Resources{Type: typ.Short(), TypeURL: typ, Node: q.Node, Resources: make([]Shown, 0, len(found))}
	for _, res := range found {
		body.Resources = append(body.Resources, show(typ, res))
	}
	s.answer(w, http.StatusOK, body)
}

// show decodes with the message types that are linked into the program.
func show(typ mesh.Type, r Resource) Shown {
	shown := Shown{Name: r.Name, Version: r.Version, ChangedAt: r.ChangedAt, Cause: r.Cause}
	if r.Body == nil {
		return shown
	}
	body, err := decode(typ, r.Body)
	if err != nil {
		shown.BodyBase64, shown.Undecoded = r.Body, err.Error()
		return shown
	}
	shown.Body = body
	return shown
}

func decode(typ mesh.Type, body []byte) (json.RawMessage, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(string(typ))
	if err != nil {
		return nil, fmt.Errorf("find message type: %w", err)
	}
	m := kind.New().Interface()
	if err := proto.Unmarshal(body, m); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	text, err := protojson.Marshal(m) // fails for an Any of an unknown type inside
	if err != nil {
		return nil, fmt.Errorf("write as JSON: %w", err)
	}
	return text, nil
}
