package apiproxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// request is what a path and a query ask for.
type request struct {
	verb, resource, namespace, name string
}

// watching is the verb of a watch; the others are "list", "probe" and "get".
const watching = "watch"

// parse reads /api/v1/[namespaces/NS/]PLURAL[/NAME] and /apis/GROUP/VERSION/….
func parse(r *http.Request) request {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	skip := 2
	if parts[0] == "apis" {
		skip = 3
	}
	parts = parts[min(skip, len(parts)):]
	var q request
	if len(parts) > 2 && parts[0] == "namespaces" {
		q.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 0 {
		q.resource = parts[0]
	}
	switch query := r.URL.Query(); {
	case len(parts) > 1:
		q.verb, q.name = "get", parts[1]
	case query.Get("watch") == "true" || query.Get("watch") == "1":
		q.verb = watching
	case query.Get("limit") == "1":
		q.verb = "probe"
	default:
		q.verb = "list"
	}
	return q
}

// paths are the lists that a Record holds.
var paths = map[string]string{
	"services": "/api/v1/services", "pods": "/api/v1/pods", "nodes": "/api/v1/nodes", "namespaces": "/api/v1/namespaces",
	"endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
}

// Record is what the target held at some time: the services, endpoint slices,
// pods, nodes and namespaces.
type Record struct {
	lists map[string]*unstructured.UnstructuredList
}

// Record reads everything from the target now.
func (p *Proxy) Record() *Record {
	p.t.Helper()
	all := &Record{lists: map[string]*unstructured.UnstructuredList{}}
	for resource, path := range paths {
		list, err := p.read(path)
		if err != nil {
			p.t.Fatalf("API proxy: record %s: %v", resource, err)
		}
		all.lists[resource] = list
	}
	return all
}

func (p *Proxy) read(path string) (*unstructured.UnstructuredList, error) {
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.target.JoinPath(path).String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	answer, err := p.transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d: %s", answer.StatusCode, body)
	}
	list := &unstructured.UnstructuredList{}
	return list, list.UnmarshalJSON(body)
}

// Rewind answers everything from a record, and ends all watches, as a server
// that was restored from a backup.
func (p *Proxy) Rewind(to *Record) { p.change(func() { p.record = to }) }

// Resume goes back to the target, and ends all watches.
func (p *Proxy) Resume() { p.change(func() { p.record = nil }) }

// replay answers from a record.
func (p *Proxy) replay(w http.ResponseWriter, r *http.Request, q request, from *Record) {
	list := from.lists[q.resource]
	switch {
	case list == nil:
		refuse(w, http.StatusNotFound, q.resource)
	case q.verb == watching:
		p.replayWatch(w, r, list)
	case q.name != "":
		for _, item := range list.Items {
			if item.GetNamespace() == q.namespace && item.GetName() == q.name {
				answer(w, http.StatusOK, &item)
				return
			}
		}
		refuse(w, http.StatusNotFound, q.name)
	default:
		answer(w, http.StatusOK, choose(list, q, r.URL.Query().Get("labelSelector")))
	}
}

// choose gives the part of a list that was asked for.
func choose(list *unstructured.UnstructuredList, q request, selector string) *unstructured.UnstructuredList {
	out := &unstructured.UnstructuredList{Object: list.Object, Items: []unstructured.Unstructured{}}
	chosen, err := labels.Parse(selector)
	for _, item := range list.Items {
		if (q.namespace == "" || item.GetNamespace() == q.namespace) && err == nil && chosen.Matches(labels.Set(item.GetLabels())) {
			out.Items = append(out.Items, item)
		}
	}
	return out
}

// replayWatch is a watch of a quiet server: it ends when it was asked to, with a
// bookmark unless it began at a version that is yet to come. A listing to begin
// with is refused, so that the client lists.
func (p *Proxy) replayWatch(w http.ResponseWriter, r *http.Request, list *unstructured.UnstructuredList) {
	query := r.URL.Query()
	if query.Get("sendInitialEvents") == "true" {
		refuse(w, http.StatusUnprocessableEntity, "sendInitialEvents")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = http.NewResponseController(w).Flush()
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds"))
	end := time.NewTimer(time.Duration(seconds) * time.Second)
	defer end.Stop()
	for {
		s, changed := p.now("")
		if s.record == nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		case <-end.C:
			if query.Get("resourceVersion") == list.GetResourceVersion() && query.Get("allowWatchBookmarks") == "true" {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
					"kind": strings.TrimSuffix(list.GetKind(), "List"), "apiVersion": list.GetAPIVersion(),
					"metadata": map[string]any{"resourceVersion": list.GetResourceVersion()},
				}})
			}
			return
		}
	}
}

func answer(w http.ResponseWriter, code int, o any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(o)
}

func refuse(w http.ResponseWriter, code int, what string) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	answer(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Message: what + ": the proxy says no", Reason: reasons[code],
	})
}

var reasons = map[int]metav1.StatusReason{
	http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusForbidden: metav1.StatusReasonForbidden,
	http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusTooManyRequests: metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
	http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
}
