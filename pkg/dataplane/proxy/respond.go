package proxy

import (
	"io"
	"net/http"
	"strconv"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// respond tells the client of an error of ours, when nothing else has been
// sent yet, and gives the HTTP status that counts.
func respond(w http.ResponseWriter, r *http.Request, e *upstream.Error) int {
	h := w.Header()
	h.Set("Proxy-Status", e.ProxyStatus())
	if isGRPC(r.Header) {
		// Trailers-only: HEADERS with END_STREAM, and status 200 whatever happened.
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(int(e.Reason.GRPC())))
		h.Set("Grpc-Message", e.GRPCMessage())
		w.WriteHeader(http.StatusOK)
		return e.Reason.Status()
	}
	text := "freshmesh: " + e.Error() + "\n"
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(e.Reason.Status())
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, text)
	}
	return e.Reason.Status()
}
