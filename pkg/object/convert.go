package object

import (
	"fmt"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"k8s.io/apimachinery/pkg/runtime"
)

// Convert gives the mesh value of a core/v1 Service, Pod, Node or Namespace,
// or of a discovery.k8s.io/v1 EndpointSlice, and what is wrong with its parts:
// a bad part is left out, the rest stands. The error is for an object of
// another type, or without a name.
func Convert(o runtime.Object) (mesh.Object, []mesh.Problem, error) {
	return nil, nil, fmt.Errorf("convert %T: not a kind that the mesh reads", o)
}
