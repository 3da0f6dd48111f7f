package arch

// module is the prefix of every package of ours.
const module = "github.com/freshmesh/freshmesh/"

// rule says what the packages of one subtree may import of ours, and what kind of code they are.
type rule struct {
	// path is a package below the module; path/... is a subtree.
	path string
	// may lists what of ours it may import, in the same form; itself and what lies below it always counts.
	may []string
	// pure code does no I/O, logs nothing and reads no clock.
	pure bool
}

// rules has one entry for each package that others build on; the first that
// fits a package counts, and a package without one is an error.
var rules = []rule{
	{path: "pkg/mesh", pure: true},
	{path: "pkg/object", may: []string{"pkg/mesh"}, pure: true},
	{path: "pkg/translate/...", may: []string{"pkg/mesh"}, pure: true},
	{path: "pkg/snapshot/...", may: []string{"pkg/mesh"}, pure: true},
	{path: "pkg/ack/...", may: []string{"pkg/mesh"}, pure: true},
	{path: "pkg/history", may: []string{"pkg/mesh", "pkg/ack"}, pure: true},
	{path: "pkg/drain/drainv1"},
	{path: "pkg/drain", may: []string{"pkg/mesh"}, pure: true},
	{path: "pkg/kube/clustercheck", may: []string{"pkg/kube", "pkg/inject"}},
	{path: "pkg/kube/...", may: []string{"pkg/mesh", "pkg/object"}},
	{path: "pkg/directory", may: []string{"pkg/mesh"}},
	{path: "pkg/manifest/...", may: []string{"pkg/mesh", "pkg/object", "pkg/directory"}},
	{path: "pkg/static/...", may: []string{"pkg/mesh", "pkg/directory", "pkg/envoytypes"}},
	{path: "pkg/xds/lrs", may: []string{"pkg/mesh", "pkg/refresh"}},
	{path: "pkg/xds/ads", may: []string{"pkg/mesh", "pkg/snapshot", "pkg/ack"}, pure: true},
	{path: "pkg/xds/...", may: []string{"pkg/mesh", "pkg/snapshot", "pkg/ack", "pkg/drain"}},
	{path: "pkg/refresh/...", may: []string{"pkg/mesh"}},
	{path: "pkg/envoytypes"},
	{path: "pkg/auditlog"},
	{path: "pkg/admin/envoyaudit", may: []string{"pkg/mesh", "pkg/envoytypes"}, pure: true},
	{path: "pkg/admin/...", may: []string{"pkg/mesh", "pkg/ack", "pkg/history", "pkg/drain", "pkg/envoytypes", "internal/profiling"}},
	{path: "pkg/controlplane/...", may: []string{
		"pkg/mesh", "pkg/object", "pkg/translate/...", "pkg/snapshot/...", "pkg/ack/...", "pkg/kube/...",
		"pkg/manifest/...", "pkg/static/...", "pkg/history", "pkg/auditlog", "pkg/drain/...", "pkg/xds/...", "pkg/refresh/...", "pkg/admin/...",
		"pkg/config", "pkg/directory",
	}},
	{path: "pkg/dataplane/discovery", may: []string{"pkg/mesh"}},
	{path: "pkg/dataplane/message"},
	{path: "pkg/dataplane/http2/header", may: []string{"pkg/dataplane/message"}},
	{path: "pkg/dataplane/linger"},
	{path: "pkg/dataplane/http2", may: []string{"pkg/dataplane/message", "pkg/dataplane/http2/header", "pkg/dataplane/upstream", "pkg/dataplane/linger"}},
	{path: "pkg/dataplane/http1/relay", may: []string{"pkg/dataplane/message", "pkg/dataplane/http1", "pkg/dataplane/upstream", "pkg/dataplane/linger"}},
	{path: "pkg/dataplane/http1", may: []string{"pkg/dataplane/message"}},
	{path: "pkg/dataplane/upstream", may: []string{"pkg/dataplane/message"}},
	{path: "pkg/dataplane/barrier", may: []string{"pkg/drain/drainv1"}},
	{path: "pkg/dataplane/redirect"},
	{path: "pkg/dataplane/balance", may: []string{"pkg/mesh"}},
	{path: "pkg/dataplane/health", may: []string{"pkg/mesh", "pkg/dataplane/discovery"}},
	// An endpoint owns all of its connections, so that it can retire them: those of the relays too. The relays
	// know of no endpoint; a lease gives the pool as it is, since sending takes the relay's own connection.
	{path: "pkg/dataplane/endpoints", may: []string{
		"pkg/mesh", "pkg/dataplane/balance", "pkg/dataplane/discovery", "pkg/dataplane/health", "pkg/dataplane/upstream",
		"pkg/dataplane/http1", "pkg/dataplane/http1/relay", "pkg/dataplane/http2",
	}},
	{path: "pkg/dataplane/detect", pure: true},
	{path: "pkg/dataplane/proxyproto"},
	{path: "pkg/dataplane/capture"},
	{path: "pkg/dataplane/limit", may: []string{"pkg/dataplane/upstream"}},
	{path: "pkg/dataplane/proxy", may: []string{
		"pkg/mesh", "pkg/dataplane/discovery", "pkg/dataplane/endpoints", "pkg/dataplane/upstream",
		"pkg/dataplane/message", "pkg/dataplane/http1", "pkg/dataplane/http1/relay", "pkg/dataplane/http2",
		"pkg/dataplane/capture", "pkg/dataplane/detect", "pkg/dataplane/proxyproto",
	}},
	{path: "pkg/dataplane/admin", may: []string{"pkg/mesh", "internal/profiling", "pkg/dataplane/barrier", "pkg/dataplane/discovery", "pkg/dataplane/endpoints"}},
	{path: "pkg/dataplane/...", may: []string{"pkg/mesh", "pkg/dataplane/..."}},
	{path: "pkg/config"},
	{path: "pkg/bootstrap"},
	// An annotation has the form of a flag, and is judged as that.
	{path: "pkg/inject", may: []string{"pkg/config"}},
	{path: "internal/testaddr"},
	{path: "internal/testpage"},
	{path: "internal/testwait"},
	{path: "internal/profiling"},
	{path: "internal/kubetest", may: []string{"internal/testaddr"}},
	{path: "internal/...", may: []string{"pkg/...", "internal/..."}},
	{path: "cmd/...", may: []string{"pkg/...", "internal/..."}},
	{path: "test/model/oracle", pure: true},
	{path: "test/...", may: []string{"pkg/...", "internal/...", "cmd/...", "test/..."}},
}

// reserved are imports from outside that only one subtree may use.
var reserved = []struct {
	imports []string // a package, or a subtree with /...
	except  []string // parts of those that everybody may use
	only    []string // subtrees of ours
	reason  string
}{
	{
		imports: []string{"k8s.io/client-go/..."},
		except:  []string{"k8s.io/client-go/kubernetes/scheme"},
		only:    []string{"pkg/kube/..."},
		reason:  "pkg/kube is the only user of the Kubernetes client",
	},
	{
		imports: []string{"github.com/envoyproxy/go-control-plane/pkg/..."},
		only:    []string{"test/..."},
		reason:  "the servers and caches of go-control-plane are for comparison only",
	},
	{
		imports: []string{"testing", "testing/..."},
		only:    []string{"internal/...", "test/..."},
		reason:  "test support does not belong into the programs",
	},
}

// impure are imports that pure code must not have.
var impure = []string{
	"net", "net/http/...", "os/...", "syscall/...", "log/...", "math/rand/...",
	"github.com/hashicorp/go-hclog", "google.golang.org/grpc/...", "github.com/prometheus/...", "k8s.io/klog/...",
}

// clock are the functions of package time that pure code must not call.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
