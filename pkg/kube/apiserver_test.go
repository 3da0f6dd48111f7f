package kube

import (
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// apiServer is a small API server: get, list, watch and nothing more, over a
// real listener, with switches for what goes wrong with real ones.
type apiServer struct {
	t       *testing.T
	address string
	server  *http.Server
	served  sync.WaitGroup

	mu      sync.Mutex // guards all below
	version int
	objects map[string]apiObject // by plural/namespace/name
	log     []change
	changed chan struct{} // closed with every change of anything below or above

	status    map[string]int  // plural → the answer to everything, instead of the right one
	slow      map[string]bool // plural → lists wait
	deaf      map[string]bool // plural → watches that have begun deliver nothing more
	streaming bool            // whether a watch can begin with a listing
	oldest    int             // the oldest version that a watch can begin at
	epoch     int             // a watch of an earlier epoch ends
	protocol  string          // of the last request
}

type change struct {
	version int
	plural  string
	event   []byte
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	a := &apiServer{
		t: t, version: 100, objects: map[string]apiObject{}, changed: make(chan struct{}),
		status: map[string]int{}, slow: map[string]bool{}, deaf: map[string]bool{},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	a.address = l.Addr().String()
	a.serve(l)
	t.Cleanup(a.stop)
	return a
}

func (a *apiServer) serve(l net.Listener) {
	server := &http.Server{Handler: http.HandlerFunc(a.handle)}
	a.server = server
	a.served.Go(func() { _ = server.Serve(l) })
}

// stop cuts every connection and closes the port.
func (a *apiServer) stop() {
	_ = a.server.Close()
	a.set(func() { a.epoch++ })
	a.served.Wait()
}

// start opens the same port again.
func (a *apiServer) start() {
	a.t.Helper()
	l, err := net.Listen("tcp", a.address)
	must(a.t, err)
	a.serve(l)
}

// set changes anything under the lock and wakes all who wait.
func (a *apiServer) set(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	close(a.changed)
	a.changed = make(chan struct{})
}

func plural(o apiObject) string {
	switch o.(type) {
	case *corev1.Service:
		return "services"
	case *discoveryv1.EndpointSlice:
		return "endpointslices"
	case *corev1.Pod:
		return "pods"
	case *corev1.Node:
		return "nodes"
	case *corev1.Namespace:
		return "namespaces"
	}
	return ""
}

// put creates or updates objects.
func (a *apiServer) put(objects ...apiObject) {
	for _, o := range objects {
		a.set(func() {
			a.version++
			path := plural(o) + "/" + o.GetNamespace() + "/" + o.GetName()
			event := "ADDED"
			if old, ok := a.objects[path]; ok {
				event = "MODIFIED"
				o.SetUID(old.GetUID())
			} else {
				o.SetUID(types.UID("uid-" + strconv.Itoa(a.version)))
			}
			o.SetResourceVersion(strconv.Itoa(a.version))
			a.objects[path] = o
			a.record(event, o)
		})
	}
}

func (a *apiServer) remove(o apiObject) {
	a.set(func() {
		a.version++
		delete(a.objects, plural(o)+"/"+o.GetNamespace()+"/"+o.GetName())
		o.SetResourceVersion(strconv.Itoa(a.version))
		a.record("DELETED", o)
	})
}

// record appends to the log; with mu.
func (a *apiServer) record(event string, o apiObject) {
	a.log = append(a.log, change{version: a.version, plural: plural(o), event: eventJSON(event, o)})
}

func eventJSON(event string, o any) []byte {
	text, _ := json.Marshal(map[string]any{"type": event, "object": o})
	return append(text, '\n')
}

func answer(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func answerStatus(w http.ResponseWriter, code int, message string) {
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Message: message, Reason: map[int]metav1.StatusReason{
			401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound,
			410: metav1.StatusReasonExpired, 422: metav1.StatusReasonInvalid, 500: metav1.StatusReasonInternalError,
		}[code],
	})
}

// handle parses /api/v1/[namespaces/NS/]PLURAL[/NAME] and /apis/discovery.k8s.io/v1/….
func (a *apiServer) handle(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/apis/discovery.k8s.io/v1/")
	parts := strings.Split(path, "/")
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	a.mu.Lock()
	code := a.status[parts[0]]
	a.protocol = r.Proto
	a.mu.Unlock()
	switch {
	case code != 0:
		answerStatus(w, code, parts[0]+" are not for you")
	case len(parts) == 2:
		a.get(w, parts[0]+"/"+namespace+"/"+parts[1])
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r, parts[0])
	default:
		a.list(w, r, parts[0], namespace)
	}
}

func (a *apiServer) get(w http.ResponseWriter, path string) {
	a.mu.Lock()
	o, ok := a.objects[path]
	a.mu.Unlock()
	if !ok {
		answerStatus(w, http.StatusNotFound, path+" not found")
		return
	}
	answer(w, http.StatusOK, o)
}

func (a *apiServer) list(w http.ResponseWriter, r *http.Request, plural, namespace string) {
	for {
		a.mu.Lock()
		wait, changed := a.slow[plural] && r.URL.Query().Get("limit") != "1", a.changed
		a.mu.Unlock()
		if !wait {
			break
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
	selector, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		answerStatus(w, http.StatusUnprocessableEntity, err.Error())
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	items := []any{}
	for path, o := range a.objects {
		if strings.HasPrefix(path, plural+"/"+namespace) && selector.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o)
		}
	}
	kind, version := listTypes[plural][0], listTypes[plural][1]
	answer(w, http.StatusOK, map[string]any{
		"kind": kind, "apiVersion": version, "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)},
	})
}

var listTypes = map[string][2]string{
	"services": {"ServiceList", "v1"}, "pods": {"PodList", "v1"}, "nodes": {"NodeList", "v1"},
	"namespaces": {"NamespaceList", "v1"}, "endpointslices": {"EndpointSliceList", "discovery.k8s.io/v1"},
}

func (a *apiServer) watch(w http.ResponseWriter, r *http.Request, plural string) {
	a.mu.Lock()
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	streaming, gone, epoch := a.streaming, from != 0 && from < a.oldest, a.epoch
	var first [][]byte
	if initial {
		from = a.version
		for path, o := range a.objects {
			if strings.HasPrefix(path, plural+"/") {
				first = append(first, eventJSON("ADDED", o))
			}
		}
		first = append(first, a.bookmark(plural))
	}
	a.mu.Unlock()
	switch {
	case initial && !streaming:
		answerStatus(w, http.StatusUnprocessableEntity, "sendInitialEvents is forbidden")
		return
	case gone:
		answerStatus(w, http.StatusGone, "too old resource version")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	for _, event := range first {
		_, _ = w.Write(event)
	}
	for {
		a.mu.Lock()
		deaf, over, changed := a.deaf[plural], a.epoch != epoch, a.changed
		for _, c := range a.log {
			if c.version > from && c.plural == plural && !deaf && !over {
				_, _ = w.Write(c.event)
				from = c.version
			}
		}
		a.mu.Unlock()
		if over {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// bookmark ends the listing with which a watch begins; with mu.
func (a *apiServer) bookmark(plural string) []byte {
	kind := strings.TrimSuffix(listTypes[plural][0], "List")
	return eventJSON("BOOKMARK", map[string]any{
		"kind": kind, "apiVersion": listTypes[plural][1],
		"metadata": map[string]any{
			"resourceVersion": strconv.Itoa(a.version),
			"annotations":     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		},
	})
}

func svc(name string, port int32) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{Kind: "Service", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port}}},
	}
}

func eps(name, service, address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{Kind: "EndpointSlice", APIVersion: "discovery.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

func node(name string) *corev1.Node {
	return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}
