package cluster

import (
	"fmt"
	"path/filepath"

	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

const (
	etcdURL     = "http://127.0.0.1:2379"
	etcdPeerURL = "http://127.0.0.1:2380"
	issuer      = "https://kubernetes.default.svc.cluster.local"
	// serviceRange holds sandbox.APIService and sandbox.DNSService.
	serviceRange = "10.96.0.0/16,fd00:10:96::/112"
)

func (k *Cluster) etcdArgs() []string {
	return []string{
		"--name=test", "--data-dir=" + filepath.Join(k.config.Dir, "etcd"),
		"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
		"--listen-peer-urls=" + etcdPeerURL, "--initial-advertise-peer-urls=" + etcdPeerURL, "--initial-cluster=test=" + etcdPeerURL,
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

func (k *Cluster) apiArgs() []string {
	in := func(name string) string { return filepath.Join(k.config.Dir, name) }
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--secure-port=" + apiPort, "--advertise-address=" + sandbox.Gateway4.String(),
		"--tls-cert-file=" + in("api.crt"), "--tls-private-key-file=" + in("api.key"), "--client-ca-file=" + in("ca.crt"),
		"--requestheader-client-ca-file=" + in("ca.crt"), "--requestheader-allowed-names=nobody",
		"--service-cluster-ip-range=" + serviceRange,
		"--service-account-issuer=" + issuer,
		"--service-account-key-file=" + in("accounts.key"), "--service-account-signing-key-file=" + in("accounts.key"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
		// Started again, it need not wait for the controllers' leases of its predecessor to run out.
		"--shutdown-delay-duration=0s",
	}
	if s := k.config.EvictAfter; s > 0 {
		args = append(args, fmt.Sprintf("--default-not-ready-toleration-seconds=%d", int(s.Seconds())),
			fmt.Sprintf("--default-unreachable-toleration-seconds=%d", int(s.Seconds())))
	}
	return args
}

func (k *Cluster) controllerArgs() []string {
	in := func(name string) string { return filepath.Join(k.config.Dir, name) }
	args := []string{
		// Each of its controllers has its own service account, and only that one's rights.
		"--use-service-account-credentials=true", "--controllers=*,-bootstrap-signer-controller,-token-cleaner-controller",
		"--root-ca-file=" + in("ca.crt"), "--service-account-private-key-file=" + in("accounts.key"),
		"--allocate-node-cidrs=false", "--profiling=false",
	}
	if g := k.config.NodeGrace; g > 0 {
		args = append(args, "--node-monitor-grace-period="+g.String(), "--node-monitor-period="+(g/4).String())
	}
	return args
}
