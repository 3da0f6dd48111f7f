package kubelet

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// target is what a probe or a hook talks to: a container of a pod at its address.
type target struct {
	spec *v1.Container
	ip   string
	// exec runs a command in the container, and gives its exit code.
	exec func(ctx context.Context, command []string) (int32, error)
}

// hook runs a lifecycle hook until it is done or ctx ends, and gives what it said: the status and
// the body of an HTTP response. As kubelet does, it takes any response for a good one.
func (t target) hook(ctx context.Context, h *v1.LifecycleHandler) (said string, err error) {
	switch {
	case h.Exec != nil:
		code, err := t.exec(ctx, h.Exec.Command)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return "", err
	case h.HTTPGet != nil:
		status, body, err := t.get(ctx, h.HTTPGet, "kube-lifecycle/1.37")
		return fmt.Sprint(status, " ", body), err
	case h.Sleep != nil:
		timer := time.NewTimer(time.Duration(h.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
			return "", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	default:
		return "", fmt.Errorf("hook of %s does nothing", t.spec.Name)
	}
}

// probe asks once, within the probe's timeout.
func (t target) probe(ctx context.Context, p *v1.Probe) error {
	ctx, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
	defer cancel()
	switch {
	case p.Exec != nil:
		code, err := t.exec(ctx, p.Exec.Command)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		return err
	case p.HTTPGet != nil:
		status, _, err := t.get(ctx, p.HTTPGet, "kube-probe/1.37")
		if err == nil && (status < 200 || status >= 400) {
			err = fmt.Errorf("HTTP status %d", status)
		}
		return err
	case p.TCPSocket != nil:
		port, err := t.port(p.TCPSocket.Port)
		if err != nil {
			return err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(t.host(p.TCPSocket.Host), port))
		if err != nil {
			return err
		}
		return conn.Close()
	case p.GRPC != nil:
		return t.grpc(ctx, p.GRPC)
	default:
		return fmt.Errorf("probe of %s asks nothing", t.spec.Name)
	}
}

// get gives the status and the beginning of the body of a GET on a connection of its own.
func (t target) get(ctx context.Context, g *v1.HTTPGetAction, agent string) (status int, body string, err error) {
	port, err := t.port(g.Port)
	if err != nil {
		return 0, "", err
	}
	scheme := strings.ToLower(cmp.Or(string(g.Scheme), "http"))
	url := scheme + "://" + net.JoinHostPort(t.host(g.Host), port) + "/" + strings.TrimPrefix(g.Path, "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("User-Agent", agent)
	for _, h := range g.HTTPHeaders {
		request.Header.Set(h.Name, h.Value)
		if http.CanonicalHeaderKey(h.Name) == "Host" {
			request.Host = h.Value
		}
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // as kubelet
	client := http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, 10<<10))
	return response.StatusCode, string(text), err
}

func (t target) host(named string) string {
	if named != "" {
		return named
	}
	return t.ip
}

func (t target) port(p intstr.IntOrString) (string, error) {
	if p.Type == intstr.Int {
		return itoa(p.IntVal), nil
	}
	for _, port := range t.spec.Ports {
		if port.Name == p.StrVal {
			return itoa(port.ContainerPort), nil
		}
	}
	if _, err := strconv.Atoi(p.StrVal); err == nil {
		return p.StrVal, nil
	}
	return "", fmt.Errorf("container %s has no port %s", t.spec.Name, p.StrVal)
}

// seconds gives a duration of the API, or the default where it is not set.
func seconds(n int32, otherwise int32) time.Duration {
	if n <= 0 {
		n = otherwise
	}
	return time.Duration(n) * time.Second
}
