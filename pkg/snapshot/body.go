package snapshot

import (
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"google.golang.org/protobuf/encoding/protowire"
)

// Body is one form of a resource, ready for the wire. Immutable and shared by
// every stream that sends it.
type Body struct {
	Name    mesh.Name
	Version mesh.Version
	// Changed is the generation in which this form came up for its viewers.
	Changed mesh.Generation
	// Sum depends on name and version; the XOR of Sums identifies a set of resources.
	Sum uint64
	// wire is field 2 (resources) of a DeltaDiscoveryResponse: a Resource
	// message that ends in its own field 2, the Any; sotw is where that begins.
	// The same bytes are field 2 (resources) of a DiscoveryResponse.
	wire []byte
	sotw int
}

// Delta is the encoded `resources` field of a DeltaDiscoveryResponse, tag included.
func (b *Body) Delta() []byte { return b.wire }

// SotW is the encoded `resources` field of a DiscoveryResponse, tag included.
func (b *Body) SotW() []byte { return b.wire[b.sotw:] }

// Value is the serialised message itself.
func (b *Body) Value() []byte {
	anyBytes, _ := protowire.ConsumeBytes(b.SotW()[1:])
	for len(anyBytes) > 0 {
		num, _, n := protowire.ConsumeTag(anyBytes)
		value, m := protowire.ConsumeBytes(anyBytes[n:])
		if num == anyValue {
			return value
		}
		anyBytes = anyBytes[n+m:]
	}
	return nil
}

// Field numbers of envoy.service.discovery.v3 and google.protobuf.Any.
const (
	responseResources = 2
	resourceVersion   = 1
	resourceAny       = 2
	resourceName      = 3
	anyTypeURL        = 1
	anyValue          = 2
)

func newBody(t mesh.Type, name mesh.Name, value []byte, changed mesh.Generation) *Body {
	version := mesh.VersionOf(value)
	var a []byte
	a = protowire.AppendTag(a, anyTypeURL, protowire.BytesType)
	a = protowire.AppendString(a, string(t))
	a = protowire.AppendTag(a, anyValue, protowire.BytesType)
	a = protowire.AppendBytes(a, value)

	var head []byte
	head = protowire.AppendTag(head, resourceVersion, protowire.BytesType)
	head = protowire.AppendString(head, string(version))
	head = protowire.AppendTag(head, resourceName, protowire.BytesType)
	head = protowire.AppendString(head, name.Value())
	tail := protowire.SizeTag(resourceAny) + protowire.SizeBytes(len(a))

	wire := make([]byte, 0, protowire.SizeTag(responseResources)+protowire.SizeBytes(len(head)+tail))
	wire = protowire.AppendTag(wire, responseResources, protowire.BytesType)
	wire = protowire.AppendVarint(wire, uint64(len(head)+tail))
	wire = append(wire, head...)
	sotw := len(wire)
	wire = protowire.AppendTag(wire, resourceAny, protowire.BytesType)
	wire = protowire.AppendBytes(wire, a)
	return &Body{
		Name: name, Version: version, Changed: changed, wire: wire, sotw: sotw,
		Sum: mesh.Sum(name, version),
	}
}
