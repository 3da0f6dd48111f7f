package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/test/cluster/rig"
)

// Both ends of a connection are captured. Nothing here but a proxy leads from a cluster IP to a
// pod, so a client that knows no proxy and is answered there was captured.
const redirected = `
apiVersion: v1
kind: Service
metadata: {name: captured}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: captured}
  ports:
  - {name: http, port: 8080, appProtocol: http}
  - {name: grpc, port: 9090, appProtocol: grpc}
  - {name: tcp, port: 9000, appProtocol: tcp}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: captured}
spec:
  replicas: 2
  selector: {matchLabels: {app: captured}}
  template:
    metadata:
      labels: {app: captured}
      annotations: {freshmesh.dev/redirect: enabled, freshmesh.dev/skip-inbound-ports: "8081"}
    spec:
      terminationGracePeriodSeconds: 40
      containers:
      - name: app
        image: app
        args: [serve]
        readinessProbe: {httpGet: {port: 8080, path: /ready}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 6}
`

// unaware is a client that knows no proxy: IP is the service's. gRPC has a container of its own, for its port.
func unaware(name, ip string) string {
	load := func(container, stats, port, kinds string) string {
		return fmt.Sprintf(`
  - name: %s
    image: app
    args: [load, --host=captured, "--stats=:%s", "--proxy=%s", "--tcp-address=%s", --kinds=%s, --rate=10, --clients=1]
    readinessProbe: {httpGet: {port: %s, path: /stats}, periodSeconds: 1, timeoutSeconds: 10}`,
			container, stats, net.JoinHostPort(ip, port), net.JoinHostPort(ip, "9000"), kinds, stats)
	}
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {freshmesh.dev/redirect: enabled}}
spec:
  terminationGracePeriodSeconds: 1
  containers:%s%s
`, name, load("load", "9900", "8080", "http,ws,tcp"), load("rpc", "9901", "9090", "grpc,stream"))
}

func TestRedirect(t *testing.T) {
	p := newPlace(t, "redirect")
	t.Parallel()
	p.applyText(redirected)
	deployed(t, p.namespace, "captured", rolloutTime)
	service, err := the.Admin.CoreV1().Services(p.namespace).Get(t.Context(), "captured", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var clients []client
	for i, ip := range service.Spec.ClusterIPs {
		name := fmt.Sprintf("unaware-%d", i)
		p.applyText(unaware(name, ip))
		pod := p.ready(name)
		clients = append(clients, client{p, pod, ""}, client{p, pod, "9901"})
	}
	for _, c := range clients {
		c.settled()
	}
	p.inbound(p.pods("captured"))

	old := names(p.pods("captured"))
	p.applyText(strings.Replace(redirected, "args: [serve]", `args: [serve, --grace, "6s"]`, 1))
	deployed(t, p.namespace, "captured", rolloutTime)
	p.replaced(clients, old, names(p.pods("captured")))
}

// inbound wants what arrives at pods to be captured, over both families, but for the port that is skipped:
// where nobody listens the one is answered by the proxy, and the other refused by the kernel.
func (p place) inbound(pods []v1.Pod) {
	p.t.Helper()
	for _, pod := range pods {
		for _, ip := range pod.Status.PodIPs {
			for port, captured := range map[string]bool{"8089": true, "8081": false} {
				at := net.JoinHostPort(ip.IP, port)
				rig.Until(p.t, time.Minute, fmt.Sprintf("%s captured %v", at, captured), func(ctx context.Context) (bool, any) {
					request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/", http.NoBody)
					if err != nil {
						return false, err
					}
					request.Close = true
					response, err := http.DefaultClient.Do(request)
					if err != nil {
						return !captured && strings.Contains(err.Error(), "refused"), err
					}
					defer func() { _ = response.Body.Close() }()
					why := response.Header.Get("Proxy-Status")
					return captured && strings.HasPrefix(why, "freshmesh;"), fmt.Sprint(response.Status, " ", why)
				})
			}
		}
	}
}
