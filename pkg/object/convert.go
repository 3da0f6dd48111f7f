package object

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
)

// annotationPrefix marks the annotations that are ours.
const annotationPrefix = "freshmesh.dev/"

// Convert gives the mesh value of a core/v1 Service, Pod, Node or Namespace,
// or of a discovery.k8s.io/v1 EndpointSlice, and what is wrong with its parts:
// a bad part is left out, the rest stands. A namespaced object that names no
// namespace is in "default", as kubectl has it. The result shares no memory
// with o that could change.
//
// The error is for an object of another type, or without a name that the API
// would accept: such a name would end up in host names.
func Convert(o runtime.Object) (mesh.Object, []mesh.Problem, error) {
	switch o := o.(type) {
	case *corev1.Service:
		return convert(mesh.KindService, &o.ObjectMeta, func(m mesh.Meta, p *problems) mesh.Object { return service(m, o, p) })
	case *discoveryv1.EndpointSlice:
		return convert(mesh.KindEndpointSlice, &o.ObjectMeta, func(m mesh.Meta, p *problems) mesh.Object { return slice(m, o, p) })
	case *corev1.Pod:
		return convert(mesh.KindPod, &o.ObjectMeta, func(m mesh.Meta, p *problems) mesh.Object { return pod(m, o, p) })
	case *corev1.Node:
		return convert(mesh.KindNode, &o.ObjectMeta, func(m mesh.Meta, _ *problems) mesh.Object { return node(m, o) })
	case *corev1.Namespace:
		return convert(mesh.KindNamespace, &o.ObjectMeta, func(m mesh.Meta, _ *problems) mesh.Object { return namespace(m, o) })
	}
	return nil, nil, fmt.Errorf("convert %T: not a kind that the mesh reads", o)
}

// convert does what all kinds have in common, and then the kind's own part.
func convert(kind mesh.Kind, o *metav1.ObjectMeta, rest func(mesh.Meta, *problems) mesh.Object) (mesh.Object, []mesh.Problem, error) {
	key := mesh.Key{Kind: kind, Namespace: o.Namespace, Name: o.Name}
	if kind != mesh.KindNode && kind != mesh.KindNamespace && key.Namespace == "" {
		key.Namespace = metav1.NamespaceDefault
	}
	if err := checkKey(key); err != nil {
		return nil, nil, fmt.Errorf("convert %s: %w", key, err)
	}
	p := &problems{object: key.String()}
	m := mesh.Meta{Key: key, UID: string(o.UID), ResourceVersion: o.ResourceVersion}
	m.ChangedAt, m.ChangedBy = changedAt(o, p)
	return rest(m, p), p.found, nil
}

// checkKey holds a key to the API's rules: a label where the name becomes part
// of a host name, a subdomain otherwise.
func checkKey(k mesh.Key) error {
	if k.Name == "" {
		return errors.New("metadata.name: missing")
	}
	rule := validation.IsDNS1123Subdomain
	if k.Kind == mesh.KindService || k.Kind == mesh.KindNamespace {
		rule = validation.IsDNS1123Label
	}
	if reasons := rule(k.Name); len(reasons) > 0 {
		return fmt.Errorf("metadata.name: %q: %s", k.Name, reasons[0])
	}
	if k.Namespace == "" {
		return nil
	}
	if reasons := validation.IsDNS1123Label(k.Namespace); len(reasons) > 0 {
		return fmt.Errorf("metadata.namespace: %q: %s", k.Namespace, reasons[0])
	}
	return nil
}

// changedAt is when the object last changed, as far as it tells: the trigger
// time that the endpoint controllers write, else the newest managed field.
func changedAt(o *metav1.ObjectMeta, p *problems) (time.Time, mesh.ChangeOrigin) {
	if text, ok := o.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err == nil {
			return at, mesh.ByTrigger
		}
		p.add("metadata.annotations["+corev1.EndpointsLastChangeTriggerTime+"]", "%q is not an RFC 3339 time", text)
	}
	var newest time.Time
	for _, f := range o.ManagedFields {
		if f.Time != nil && f.Time.After(newest) {
			newest = f.Time.Time
		}
	}
	if newest.IsZero() {
		return newest, ""
	}
	return newest, mesh.ByManagedFields
}

// ownAnnotations are the annotations with our prefix, prefix cut off; nil when there are none.
func ownAnnotations(all map[string]string) map[string]string {
	var own map[string]string
	for k, v := range all {
		name, ok := strings.CutPrefix(k, annotationPrefix)
		if !ok {
			continue
		}
		if own == nil {
			own = make(map[string]string)
		}
		own[name] = v
	}
	return own
}

// problems collects what is wrong with one object.
type problems struct {
	object string
	found  []mesh.Problem
}

func (p *problems) add(field, format string, args ...any) {
	p.found = append(p.found, mesh.Problem{Object: p.object, Field: field, Reason: fmt.Sprintf(format, args...)})
}

// index gives "field[i]".
func index(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
