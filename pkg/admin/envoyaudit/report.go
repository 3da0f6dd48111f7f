package envoyaudit

import (
	"fmt"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// Kind says in what way something differs.
type Kind string

// The kinds of differences.
const (
	// Missing: Envoy lacks it.
	Missing Kind = "missing"
	// Extra: Envoy has it, and the control plane does not.
	Extra Kind = "extra"
	// Older: Envoy has another content than the control plane has now.
	Older Kind = "older"
	// Altered: Envoy names the current version, and yet has another content.
	Altered Kind = "altered"
	// Warming: Envoy has it, and does not use it yet.
	Warming Kind = "warming"
	// Refused: Envoy says that it did not take it, and why.
	Refused Kind = "refused"
	// Unreadable: it cannot be compared.
	Unreadable Kind = "unreadable"
)

// Difference is one thing that Envoy does not have as it should.
type Difference struct {
	// Type is cds, eds, lds or rds.
	Type string `json:"type"`
	// Name is the resource's; for endpoints it is the cluster's, whose assignment may have another name.
	Name string `json:"name"`
	// Endpoint is an address, IP:PORT, where one endpoint of a cluster differs; "" otherwise.
	Endpoint string `json:"endpoint,omitempty"`
	Kind     Kind   `json:"kind"`
	// Has and Want are versions; "" where there is none or it is not known.
	Has  string       `json:"has,omitempty"`
	Want mesh.Version `json:"want,omitempty"`
	// Fields say what differs, in the order of the message, at most maxFields.
	Fields []Field `json:"fields,omitempty"`
	// Detail says more, in Envoy's words where it has some.
	Detail string `json:"detail,omitempty"`
}

// String is the difference on one line.
func (d Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: ", d.Type, d.Name)
	if d.Endpoint != "" {
		fmt.Fprintf(&b, "endpoint %s: ", d.Endpoint)
	}
	b.WriteString(string(d.Kind))
	switch {
	case d.Endpoint != "": // the version is the whole assignment's, and Envoy tells none
	case d.Has != "" && d.Want != "" && d.Has != string(d.Want):
		fmt.Fprintf(&b, ", version %s, want %s", d.Has, d.Want)
	case d.Has != "":
		fmt.Fprintf(&b, ", version %s", d.Has)
	case d.Want != "":
		fmt.Fprintf(&b, ", want version %s", d.Want)
	}
	if d.Detail != "" {
		b.WriteString(": " + d.Detail)
	}
	separator := ": "
	for _, f := range d.Fields {
		b.WriteString(separator + f.String())
		separator = "; "
	}
	return b.String()
}

// Field is a field of a message that differs.
type Field struct {
	// Path is the way to it: load_balancing_policy.policies[1].name. An element
	// of a list whose elements have names stands under its name, and so does a map's under its key.
	Path string `json:"path"`
	// Has and Want are JSON or plain text, cut to maxText; "" is a field that is not set.
	Has  string `json:"has,omitempty"`
	Want string `json:"want,omitempty"`
}

// String is "path: has X, want Y".
func (f Field) String() string {
	return fmt.Sprintf("%s: has %s, want %s", f.Path, orNothing(f.Has), orNothing(f.Want))
}

func orNothing(text string) string {
	if text == "" {
		return "nothing"
	}
	return text
}

// Report is what came of a comparison.
type Report struct {
	// Node is Envoy's own id, and Client its name and version.
	Node   mesh.NodeID `json:"node"`
	Client string      `json:"client"`
	// InEffect is true when there is no difference.
	InEffect bool `json:"inEffect"`
	// Compared counts what the control plane has for this Envoy and was looked at.
	Compared Compared `json:"compared"`
	// Differences are sorted by type (cds, eds, lds, rds) and name.
	Differences []Difference `json:"differences"`
}

// Compared counts resources, and endpoints.
type Compared struct {
	Clusters  int `json:"clusters"`
	Endpoints int `json:"endpoints"`
	Listeners int `json:"listeners"`
	Routes    int `json:"routes"`
}
