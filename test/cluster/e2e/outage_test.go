package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/freshmesh/freshmesh/internal/apiproxy"
	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin"
	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

// knowsTime is within what the xds-servers here find that something is wrong, or right again:
// their check interval and the client's back-off, on a loaded machine.
const knowsTime = 2 * time.Minute

// The API server restarts, hangs, and goes back to an older state. What is
// known is served on, the xds-servers say that they know nothing new, and go on when it is back.
func TestOutage(t *testing.T) {
	m := mesh{place: newPlace(t, "outage"), echo: plain("echo", 2)}
	m.deploy(m.echo)
	m.clients = m.bothClients("echo")
	all := []scenario{{"Restarted", restarted}, {"Away", away}, {"Rewound", rewoundStore}}
	if !testing.Short() {
		all = append(all, scenario{"Hangs", hangs}, scenario{"StoreHangs", storeHangs})
	}
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) {
			of := m.on(t)
			test.run(t, of)
			m.echo = of.echo
		})
	}
}

// readiness asks an xds-server.
func readiness(ctx context.Context, address string) (admin.Readiness, error) {
	var r admin.Readiness
	return r, fetch(ctx, http.MethodGet, "http://"+address+"/readyz", &r)
}

// servers gives the admin addresses of the xds-servers.
func servers(t *testing.T) []string {
	t.Helper()
	list, err := the.Admin.CoreV1().Pods(meshNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: meshPods})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, pod := range list.Items {
		all = append(all, pod.Status.PodIP+":18080")
	}
	return all
}

// say waits until every server says that it reaches its source, or not, and why; in
// /readyz and in /audit.
func say(t *testing.T, servers []string, connected bool, reason string) {
	t.Helper()
	for _, address := range servers {
		rig.Until(t, knowsTime, fmt.Sprintf("%s says connected %v %q", address, connected, reason), func(ctx context.Context) (bool, any) {
			r, err := readiness(ctx, address)
			if err != nil || !r.Ready || !r.Synced || r.Connected != connected || !strings.Contains(r.Reason, reason) || (r.LagSeconds > 0) == connected {
				return false, fmt.Sprintf("%+v %v", r, err)
			}
			var a ack.Audit
			err = fetch(ctx, http.MethodGet, "http://"+address+"/audit", &a)
			s := a.Server
			return err == nil && s.Synced && (s.SourceLagSeconds > 0) == !connected && (s.SourceReason == "") == connected && strings.Contains(s.SourceReason, reason),
				fmt.Sprintf("audit: %+v %v", s, err)
		})
	}
}

// follows wants a change to be seen by the clients: one pod more.
func (m *mesh) follows() {
	m.t.Helper()
	m.echo.Replicas++
	m.deploy(m.echo)
	m.steady()
}

func restarted(t *testing.T, m *mesh) {
	all := servers(t)
	since := time.Now()
	the.StopAPI()
	say(t, all, false, "")
	knownUntil(t, all, since.Add(stopTime))
	m.lossless()
	if err := the.StartAPI(t.Context()); err != nil {
		t.Fatal(err)
	}
	say(t, all, true, "")
	m.follows()
}

func hangs(t *testing.T, m *mesh) {
	all := servers(t)
	since := time.Now()
	if err := the.PauseAPI(true); err != nil {
		t.Fatal(err)
	}
	say(t, all, false, "")
	knownUntil(t, all, since)
	m.lossless()
	if err := the.PauseAPI(false); err != nil {
		t.Fatal(err)
	}
	say(t, all, true, "")
	m.follows()
}

func storeHangs(t *testing.T, m *mesh) {
	all := servers(t)
	if err := the.PauseStore(true); err != nil {
		t.Fatal(err)
	}
	say(t, all, false, "")
	m.lossless()
	if err := the.PauseStore(false); err != nil {
		t.Fatal(err)
	}
	say(t, all, true, "")
	m.follows()
}

// rewoundStore: the state of a snapshot comes back as the newest there is. Pods that have come since are ended at once,
// as ones that nobody knows: without the barrier, so that a request on its way to one may be lost, but no later one.
func rewoundStore(t *testing.T, m *mesh) {
	saved, err := the.Save()
	if err != nil {
		t.Fatal(err)
	}
	then := m.echo
	m.follows()
	m.follows()
	if err := the.Rewind(t.Context(), saved); err != nil {
		t.Fatal(err)
	}
	m.echo = then
	deployed(t, m.namespace, "echo", rolloutTime)
	nobodyUnknown(t)
	say(t, servers(t), true, "")
	m.steadyAgain("while pods went that the snapshot does not have")
	m.follows()
	fresh(t, knowsTime)
}

// nobodyUnknown waits until the nodes run no pod that the API does not have.
func nobodyUnknown(t *testing.T) {
	t.Helper()
	rig.Until(t, rolloutTime, "without pods that the API does not have", func(ctx context.Context) (bool, any) {
		list, err := the.Admin.CoreV1().Pods(v1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		known := make(map[types.UID]bool)
		for _, pod := range list.Items {
			known[pod.UID] = true
		}
		for _, node := range the.Nodes {
			for _, pod := range node.Runs() {
				if !known[pod] {
					return false, pod
				}
			}
		}
		return true, nil
	})
}

// outsider is an xds-server in the sandbox, outside the pods, whose way to the API is the test's.
type outsider struct {
	*interoptest.Process
	admin string
}

func startOutsider(t *testing.T, kubeconfig string) outsider {
	t.Helper()
	o := outsider{admin: testaddr.Free(t, "127.0.0.1")}
	cmd := exec.Command(filepath.Join(the.Programs.Own, "xds-server"), "serve", "--kubeconfig", kubeconfig,
		"--xds-address", testaddr.Free(t, "127.0.0.1"), "--admin-address", o.admin, "--source-check-interval", "15s")
	o.Process = interoptest.Start(t, cmd)
	return o
}

// account gives a token of the xds-servers' service account, which ends with a secret.
func account(t *testing.T, secret string) string {
	t.Helper()
	made, err := the.Admin.CoreV1().Secrets(meshNamespace).Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = the.Admin.CoreV1().Secrets(meshNamespace).Delete(context.Background(), secret, metav1.DeleteOptions{}) // it may be gone
	})
	token, err := the.Admin.CoreV1().ServiceAccounts(meshNamespace).CreateToken(t.Context(), "xds-server", &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: secret, UID: made.UID}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token
}

// The way to the API server is slow, limits, or keeps a watch silent.
func TestSlowAPI(t *testing.T) {
	p := newPlace(t, "slow")
	t.Parallel()
	transport, err := rest.TransportFor(&rest.Config{
		Host: the.AdminConfig.Host, BearerToken: account(t, "slow"), TLSClientConfig: rest.TLSClientConfig{CAData: the.CA()},
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy := apiproxy.Start(t, the.AdminConfig.Host, transport)
	o := startOutsider(t, proxy.Kubeconfig())
	at := []string{o.admin}
	say(t, at, true, "")
	service := func(name string) {
		p.applyText(named(name))
		knows(t, o.admin, p.name(name)+":8080")
	}
	service("before")
	t.Run("TwoSecondsACall", func(t *testing.T) {
		proxy.Set(func(f *apiproxy.Faults) { f.Delay = 2 * time.Second })
		proxy.Cut()
		service("slowly")
		proxy.Set(func(f *apiproxy.Faults) { f.Delay = 0 })
		say(t, at, true, "")
	})
	t.Run("TooManyRequests", func(t *testing.T) {
		proxy.Set(func(f *apiproxy.Faults) { f.Status[""] = http.StatusTooManyRequests })
		proxy.Cut()
		say(t, at, false, "")
		proxy.Set(func(f *apiproxy.Faults) { clear(f.Status) })
		say(t, at, true, "")
		service("limited")
	})
	t.Run("SilentWatch", func(t *testing.T) {
		proxy.Set(func(f *apiproxy.Faults) { f.Silent["services"] = true })
		service("unheard")
		proxy.Set(func(f *apiproxy.Faults) { clear(f.Silent) })
		say(t, at, true, "")
	})
}

// tokenKubeconfig writes a kubeconfig for whoever the token in a file stands for.
func tokenKubeconfig(t *testing.T, token string) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters["c"] = &clientcmdapi.Cluster{Server: the.AdminConfig.Host, CertificateAuthorityData: the.CA()}
	file.AuthInfos["u"] = &clientcmdapi.AuthInfo{TokenFile: token}
	file.Contexts["c"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	file.CurrentContext = "c"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// A right is withdrawn and returned.
func TestRights(t *testing.T) {
	newPlace(t, "rights")
	all := servers(t)
	say(t, all, true, "")
	binding, err := the.Admin.RbacV1().ClusterRoleBindings().Get(t.Context(), "freshmesh-xds-server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := the.Admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), binding.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	say(t, all, false, "forbidden")
	binding.ResourceVersion, binding.UID = "", ""
	if _, err := the.Admin.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	say(t, all, true, "")
}

// A token is revoked and replaced.
func TestRevokedToken(t *testing.T) {
	newPlace(t, "revoked")
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(account(t, "first")), 0o600); err != nil {
		t.Fatal(err)
	}
	o := startOutsider(t, tokenKubeconfig(t, token))
	say(t, []string{o.admin}, true, "")
	if err := the.Admin.CoreV1().Secrets(meshNamespace).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	say(t, []string{o.admin}, false, "credentials")
	if err := os.WriteFile(token, []byte(account(t, "second")), 0o600); err != nil {
		t.Fatal(err)
	}
	// client-go reads the file anew once a minute.
	rig.Until(t, 3*time.Minute, "connected with the new token", func(ctx context.Context) (bool, any) {
		r, err := readiness(ctx, o.admin)
		return err == nil && r.Connected, fmt.Sprintf("%+v %v", r, err)
	})
}
