package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/freshmesh/freshmesh/test/cluster/build"
	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// Config is what Start needs.
type Config struct {
	Programs build.Programs
	// Dir keeps what the cluster stores and logs. It exists.
	Dir string
	// NodeGrace is how long a node may be silent before it counts as unreachable, and
	// EvictAfter how long its pods then stay, unless they tolerate that longer. 0 means
	// Kubernetes' defaults (50 s and 300 s).
	NodeGrace, EvictAfter time.Duration
}

// apiPort is where kubelet, controllers and, through the service, pods find the API server.
const apiPort = "443"

// startTime bounds the start of one program, on a loaded machine too.
const startTime = 3 * time.Minute

// Cluster is a running control plane.
type Cluster struct {
	// Admin is a client that may do everything, without a rate limit.
	Admin kubernetes.Interface
	// AdminConfig is its configuration; copy it before you change it.
	AdminConfig *rest.Config
	// Kubeconfig is a file for it.
	Kubeconfig string

	config    Config
	authority *authority
	etcd, api *process
	others    []*process
}

// Start starts a control plane on the sandbox's addresses: there is one to a
// sandbox. On an error nothing is left running.
func Start(ctx context.Context, c Config) (*Cluster, error) {
	k := &Cluster{config: c}
	if err := k.prepare(); err != nil {
		return nil, err
	}
	if err := k.startAll(ctx); err != nil {
		k.Close()
		return nil, fmt.Errorf("%w\n%s", err, k.Logs(20))
	}
	return k, nil
}

func (k *Cluster) startAll(ctx context.Context) error {
	if err := k.StartAPI(ctx); err != nil {
		return err
	}
	for _, p := range k.others {
		if err := p.start(); err != nil {
			return err
		}
	}
	// Pods need a service account, which a controller makes.
	return until(ctx, startTime, "the default service account", func(ctx context.Context) error {
		for _, p := range k.others {
			if !p.running() {
				return fatalError{fmt.Errorf("%s has ended", p.name)}
			}
		}
		_, err := k.Admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// prepare makes keys, certificates and kubeconfigs, and says how each program is run.
func (k *Cluster) prepare() error {
	dir := k.config.Dir
	var err error
	if k.authority, err = newAuthority(dir); err != nil {
		return err
	}
	if err := k.authority.server("api", []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
	}, net.IPv4(127, 0, 0, 1), sandbox.APIService.AsSlice(), sandbox.Gateway4.AsSlice(), sandbox.Gateway6.AsSlice()); err != nil {
		return err
	}
	_, key, err := newKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "accounts.key"), key, 0o600); err != nil {
		return err
	}
	if k.AdminConfig, err = k.User("admin", "system:masters"); err != nil {
		return err
	}
	if k.Admin, err = kubernetes.NewForConfig(k.AdminConfig); err != nil {
		return err
	}
	if k.Kubeconfig, err = k.kubeconfig("admin", "system:masters"); err != nil {
		return err
	}
	k.etcd, k.api = k.program("etcd", k.etcdArgs()), k.program("kube-apiserver", k.apiArgs())
	for _, c := range []struct {
		name string
		args []string
	}{{"kube-controller-manager", k.controllerArgs()}, {"kube-scheduler", nil}} {
		path, err := k.kubeconfig("system:" + c.name)
		if err != nil {
			return err
		}
		// As one of a pair would, they wait for no lease: there is one of each.
		args := append(c.args, "--kubeconfig="+path, "--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path, "--leader-elect=false")
		k.others = append(k.others, k.program(c.name, args))
	}
	return nil
}

func (k *Cluster) program(name string, args []string) *process {
	return &process{
		name: name, path: filepath.Join(k.config.Programs.Kubernetes, name),
		args: args, log: filepath.Join(k.config.Dir, name+".log"),
	}
}

// User gives a client configuration for a user in some groups.
func (k *Cluster) User(name string, groups ...string) (*rest.Config, error) {
	cert, key, err := k.authority.client(name, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: "https://127.0.0.1:" + apiPort,
		QPS:  -1, // a client's own limit would only slow tests down
		TLSClientConfig: rest.TLSClientConfig{
			CAData: k.authority.PEM, CertData: cert, KeyData: key,
		},
	}, nil
}

// kubeconfig writes a kubeconfig file for a user, and gives its path.
func (k *Cluster) kubeconfig(name string, groups ...string) (path string, err error) {
	c, err := k.User(name, groups...)
	if err != nil {
		return "", err
	}
	file := clientcmdapi.NewConfig()
	file.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: c.CertData, ClientKeyData: c.KeyData}
	file.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: name}
	file.CurrentContext = "test"
	path = filepath.Join(k.config.Dir, filepath.Base(name)+".kubeconfig")
	return path, clientcmd.WriteToFile(*file, path)
}

// Token signs a token of a service account as the API server would, with times of one's own.
func (k *Cluster) Token(ctx context.Context, namespace, name string, from, to time.Time) (string, error) {
	account, err := k.Admin.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return signToken(filepath.Join(k.config.Dir, "accounts.key"), map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + namespace + ":" + name,
		"iat": from.Unix(), "nbf": from.Unix(), "exp": to.Unix(),
		"kubernetes.io": map[string]any{
			"namespace": namespace, "serviceaccount": map[string]any{"name": name, "uid": account.UID},
		},
	})
}

// CA is the certificate, PEM, that the API server's is signed by.
func (k *Cluster) CA() []byte { return k.authority.PEM }

// Close ends every process. It may be called again.
func (k *Cluster) Close() {
	for _, p := range k.others {
		p.kill()
	}
	k.api.kill()
	k.etcd.kill()
}

// Logs gives the last lines of each program's log.
func (k *Cluster) Logs(lines int) string {
	var text strings.Builder
	for _, p := range append([]*process{k.etcd, k.api}, k.others...) {
		text.WriteString(p.name + ":\n" + p.tail(lines) + "\n")
	}
	return text.String()
}

// fatalError ends a wait before its time.
type fatalError struct{ error }

// until asks again and again until there is no error.
func until(ctx context.Context, d time.Duration, what string, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if f := (fatalError{}); errors.As(err, &f) {
			return fmt.Errorf("wait for %s: %w", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: not within %v: %w", what, d, err)
		}
	}
}
