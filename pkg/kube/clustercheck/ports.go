package clustercheck

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/freshmesh/freshmesh/pkg/kube"
)

// The ports are those of the Deployment.
const (
	xdsPort   = 18000
	adminPort = 18080
	dialTime  = 3 * time.Second
)

// checkPorts asks each replica for its readiness through the API server: from
// wherever this runs, that is the way that there is. It shows that the process listens on
// its pod's address, and that the control plane's nodes reach the pod network. From
// inside the cluster it connects to the xDS port too, as every proxy does.
func (c *checker) checkPorts(ctx context.Context) {
	pods, err := c.client.CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + serverName})
	if err != nil {
		c.unknown("ports", "list pods", err)
		return
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			c.askPod(ctx, p.Name)
			if c.Kubeconfig == "" {
				c.connect(ctx, p)
			}
		}
	}
}

func (c *checker) askPod(ctx context.Context, pod string) {
	code := 0
	_, err := c.client.CoreV1().RESTClient().Get().Namespace(c.Namespace).Resource("pods").Name(fmt.Sprintf("%s:%d", pod, adminPort)).
		SubResource("proxy").Suffix("readyz").Do(ctx).StatusCode(&code).Raw()
	where := fmt.Sprintf("pod %s, port %d", pod, adminPort)
	switch {
	case err == nil:
		c.report.add("ports", OK, "", "%s: ready", where)
	case code == http.StatusForbidden:
		c.unknown("ports", "get pods/proxy", err)
	default:
		c.report.add("ports", Warning, fmt.Sprintf("kubectl -n %s port-forward %s %d, then curl 127.0.0.1:%d/readyz", c.Namespace, pod, adminPort, adminPort),
			"%s: %s", where, kube.Explain(err, "get pods/proxy", c.server))
	}
}

func (c *checker) connect(ctx context.Context, p *corev1.Pod) {
	address := net.JoinHostPort(p.Status.PodIP, strconv.Itoa(xdsPort))
	conn, err := (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", address)
	if err != nil {
		c.report.add("ports", Missing, "Look for a NetworkPolicy that keeps this pod from port "+strconv.Itoa(xdsPort)+" of the namespace "+c.Namespace+".",
			"pod %s, port %d: %s", p.Name, xdsPort, kube.Explain(err, "connect", address))
		return
	}
	_ = conn.Close()
	c.report.add("ports", OK, "", "pod %s, port %d: connected", p.Name, xdsPort)
}
