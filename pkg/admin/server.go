package admin

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/freshmesh/freshmesh/internal/profiling"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/drain"
	"github.com/freshmesh/freshmesh/pkg/history"
	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// ErrNotFound is wrapped by what an implementation returns for a node or a
// resource that does not exist: 404, with the error's text.
var ErrNotFound = errors.New("not found")

// Auditor knows what the nodes hold.
type Auditor interface {
	// Audit gives the audit of one node, or of all for "". A node that is not
	// known gives an audit without nodes and no error, so that a client can
	// ask all replicas about a node that only one of them serves.
	Audit(ctx context.Context, node mesh.NodeID) (ack.Audit, error)
}

// Store knows the resources.
type Store interface {
	// Resources gives what q asks for, sorted by name. It wraps ErrNotFound
	// for a node that is not known, and for a name that does not exist.
	Resources(ctx context.Context, q Query) ([]Resource, error)
}

// Resyncer sends again what nodes should hold.
type Resyncer interface {
	// Resync sends everything that is subscribed again, or only the resources
	// called name (of any type), to one node, or to all for "". It gives the number of nodes that
	// something is sent to, and does not wait for them; it wraps ErrNotFound for a node that is not known.
	Resync(ctx context.Context, node mesh.NodeID, name string) (nodes int, err error)
}

// Explainer tells the story of a node and a cluster.
type Explainer interface {
	// Explain tells it; cluster may be short, endpoint "" for none. A node or a
	// cluster that is not known is a verdict of the story and no error.
	Explain(ctx context.Context, node mesh.NodeID, cluster, endpoint string) (history.Story, error)
}

// Statuser knows how the server is.
type Statuser interface {
	// Status is cheap and never blocks.
	Status() Status
}

// Status is how the server is.
type Status struct {
	ack.ServerStatus
	// Connected is false while the source cannot be reached.
	Connected bool
}

// Query asks for resources of one type.
type Query struct {
	Type mesh.Type
	// Name is "" for all.
	Name string
	// Node is whose view is wanted; "" for the view of a node that tells nothing about itself.
	Node mesh.NodeID
}

// Resource is one resource as the store holds it.
type Resource struct {
	Name      string
	Version   mesh.Version
	ChangedAt time.Time
	// Cause is the object whose change made this form.
	Cause string
	// Body is the serialised message, the value of its Any; nil where it is not to be shown.
	Body []byte
}

// Config is what a Server shows. All interfaces and Gatherer must be set.
type Config struct {
	Auditor  Auditor
	Store    Store
	Resyncer Resyncer
	Statuser Statuser
	// Explainer may be nil: then there is no /explain.
	Explainer Explainer
	Drainer   Drainer
	Versioner Versioner
	Gatherer  prometheus.Gatherer
	// Pprof serves /debug/pprof/.
	Pprof bool
	// Logger may be nil: nothing is logged.
	Logger hclog.Logger
}

// Server is the HTTP side of the control plane.
type Server struct {
	cfg     Config
	log     hclog.Logger
	handler http.Handler
}

// The limits of a connection and a request. Answers other than profiles are
// given writeTimeout; what they are made of, askTimeout.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	askTimeout        = 10 * time.Second
	writeTimeout      = 60 * time.Second
	idleTimeout       = 2 * time.Minute
	shutdownTimeout   = 2 * time.Second
	maxHeaderBytes    = 16 << 10
)

// New gives a Server. It listens to nothing: see Handler and Serve.
func New(cfg Config) *Server {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	s := &Server{cfg: cfg, log: cfg.Logger.Named("admin")}
	mux := http.NewServeMux()
	get := []string{http.MethodGet, http.MethodHead}
	mux.Handle("/livez", s.plain(get, s.livez))
	mux.Handle("/readyz", s.plain(get, s.readyz))
	mux.Handle("/audit", s.plain(get, s.audit))
	if cfg.Explainer != nil {
		mux.Handle("/explain", s.plain(get, s.explain))
	}
	mux.Handle("/resources", s.plain(get, s.resources))
	mux.Handle("/versions", s.plain(get, s.versions))
	mux.Handle("/drain", s.patient(get, drain.MaxTimeout+askTimeout, s.drain))
	mux.Handle("/resync", s.plain([]string{http.MethodPost}, s.resync))
	metrics := promhttp.HandlerFor(cfg.Gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 8, Timeout: askTimeout})
	mux.Handle("/metrics", s.plain(get, metrics.ServeHTTP))
	mux.Handle("/{$}", s.plain(get, s.page))
	if cfg.Pprof {
		profiling.Handle(mux)
	}
	mux.Handle("/", s.plain(nil, func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, http.StatusNotFound, "no such path: "+r.URL.Path)
	}))
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.fail(w, http.StatusForbidden, "a page of another site must not do this")
	}))
	s.handler = foreign.Handler(mux)
	return s
}

// Handler is everything that the package doc lists.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves on l, which it closes, until ctx ends; then requests get 2 s to
// finish, and it gives nil. The error is for a listener that fails before.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          s.log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.log.Warn("requests cut off at shutdown", "err", errors.Join(err, server.Close()))
	}
	<-failed
	return nil
}

// plain is what all handlers but the profiles share: the methods they take (nil
// for all), deadlines, and no caching.
func (s *Server) plain(methods []string, h http.HandlerFunc) http.Handler {
	return s.patient(methods, askTimeout, h)
}

// patient is plain with another time for what an answer is made of.
func (s *Server) patient(methods []string, patience time.Duration, h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if methods != nil && !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			s.fail(w, http.StatusMethodNotAllowed, r.Method+" is not allowed here")
			return
		}
		// A writer that knows no deadlines is a test's.
		if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience + writeTimeout - askTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			s.log.Debug("no write deadline", "err", err)
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		h(w, r.WithContext(ctx))
	})
}
