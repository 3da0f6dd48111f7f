package kubetest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

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

// ServeHTTP answers /api/v1/[namespaces/NS/]PLURAL[/NAME] and /apis/discovery.k8s.io/v1/….
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/"), "/apis/discovery.k8s.io/v1/")
	parts := strings.Split(path, "/")
	namespace := ""
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	s.mu.Lock()
	code := s.faults.Status[parts[0]]
	s.protocol = r.Proto
	s.counts[verbOf(parts, r.URL.Query())+" "+parts[0]]++
	s.mu.Unlock()
	switch {
	case code != 0:
		answerStatus(w, code, parts[0]+" are not for you")
	case len(parts) == 2:
		s.get(w, parts[0]+"/"+namespace+"/"+parts[1])
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r, parts[0])
	default:
		s.list(w, r, parts[0], namespace)
	}
}

func verbOf(parts []string, q url.Values) string {
	switch {
	case len(parts) == 2:
		return "get"
	case q.Get("watch") != "":
		return "watch"
	case q.Get("limit") == "1":
		return "probe"
	}
	return "list"
}

func (s *Server) get(w http.ResponseWriter, path string) {
	s.mu.Lock()
	o, ok := s.objects[path]
	s.mu.Unlock()
	if !ok {
		answerStatus(w, http.StatusNotFound, path+" not found")
		return
	}
	answer(w, http.StatusOK, o)
}

// list answers all that the selector takes, once the resource is not slow.
// A list of one object is a probe, and never slow.
func (s *Server) list(w http.ResponseWriter, r *http.Request, plural, namespace string) {
	for {
		s.mu.Lock()
		wait, changed := s.faults.Slow[plural] && r.URL.Query().Get("limit") != "1", s.changed
		s.mu.Unlock()
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
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []any{}
	for path, o := range s.objects {
		in := namespace == "" || o.GetNamespace() == namespace
		if strings.HasPrefix(path, plural+"/") && in && selector.Matches(labels.Set(o.GetLabels())) {
			items = append(items, o)
		}
	}
	answer(w, http.StatusOK, map[string]any{
		"kind": listTypes[plural][0], "apiVersion": listTypes[plural][1], "items": items,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.faults.version)},
	})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, plural string) {
	first, from, epoch, refusal := s.beginWatch(r.URL.Query(), plural)
	if refusal != 0 {
		answerStatus(w, refusal, "the watch cannot begin so")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	end := endOf(r.URL.Query())
	defer end.Stop()
	for _, event := range first {
		_, _ = w.Write(event)
	}
	for {
		events, now, over, changed := s.events(plural, from, epoch)
		if over {
			return
		}
		from = now
		for _, event := range events {
			_, _ = w.Write(event)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-end.C:
			if s.ends(w, r.URL.Query(), plural, from) {
				return
			}
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// beginWatch gives the listing that a watch begins with, if it asks for one,
// the version it goes on from, and its epoch; or the status that refuses it.
func (s *Server) beginWatch(q url.Values, plural string) (first [][]byte, from, epoch, refusal int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, _ = strconv.Atoi(q.Get("resourceVersion"))
	switch initial := q.Get("sendInitialEvents") == "true"; {
	case initial && !s.faults.Streaming:
		return nil, 0, 0, http.StatusUnprocessableEntity
	case initial && s.faults.Deaf[plural]:
		return nil, s.faults.version, s.faults.epoch, 0
	case initial:
		for path, o := range s.objects {
			if strings.HasPrefix(path, plural+"/") {
				first = append(first, eventJSON("ADDED", o))
			}
		}
		return append(first, s.bookmark(plural, true)), s.faults.version, s.faults.epoch, 0
	case from != 0 && from < s.faults.oldest:
		return nil, 0, 0, http.StatusGone
	}
	return nil, from, s.faults.epoch, 0
}

// events gives what a watch has to deliver since a version, and whether it is over.
func (s *Server) events(plural string, since, epoch int) (events [][]byte, from int, over bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from = since
	if !s.faults.Deaf[plural] && !s.faults.Mute[plural] {
		for _, c := range s.log {
			if c.version > since && c.plural == plural {
				events, from = append(events, c.event), c.version
			}
		}
	}
	return events, from, s.faults.epoch != epoch, s.changed
}

// endOf is when a watch ends that was asked to last so long; a stopped timer
// when it was not asked to.
func endOf(q url.Values) *time.Timer {
	seconds, err := strconv.Atoi(q.Get("timeoutSeconds"))
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	if err != nil {
		timer.Stop()
	}
	return timer
}

// ends ends a watch: with what it has not delivered yet, and a bookmark where the
// client takes them, as API servers do. A deaf one does not end.
func (s *Server) ends(w http.ResponseWriter, q url.Values, plural string, from int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.faults.Deaf[plural] {
		return false
	}
	if s.faults.Mute[plural] {
		return true
	}
	for _, c := range s.log {
		if c.version > from && c.plural == plural {
			_, _ = w.Write(c.event)
		}
	}
	if q.Get("allowWatchBookmarks") == "true" && !s.faults.NoBookmarks {
		_, _ = w.Write(s.bookmark(plural, false))
	}
	return true
}

// bookmark says that everything until now was delivered; the one that ends the
// listing with which a watch begins says so. With mu.
func (s *Server) bookmark(plural string, initial bool) []byte {
	metadata := map[string]any{"resourceVersion": strconv.Itoa(s.faults.version)}
	if initial {
		metadata["annotations"] = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	return eventJSON("BOOKMARK", map[string]any{
		"kind": strings.TrimSuffix(listTypes[plural][0], "List"), "apiVersion": listTypes[plural][1], "metadata": metadata,
	})
}
