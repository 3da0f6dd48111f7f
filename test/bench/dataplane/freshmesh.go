//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// build builds our programs into s.bin, if they take part.
func build(ctx context.Context, s *setup) (remove func(), err error) {
	remove = func() {}
	if !slices.Contains(s.contenders, "freshmesh") {
		return remove, nil
	}
	if s.bin, err = os.MkdirTemp("", "bench-programs-"); err != nil {
		return remove, err
	}
	remove = func() { _ = os.RemoveAll(s.bin) }
	cmd := exec.CommandContext(ctx, "go", "build", "-o", s.bin+string(filepath.Separator),
		"github.com/freshmesh/freshmesh/cmd/xds-server", "github.com/freshmesh/freshmesh/cmd/dataplane")
	if out, err := cmd.CombinedOutput(); err != nil {
		remove()
		return func() {}, fmt.Errorf("go build: %w: %s", err, out)
	}
	return remove, nil
}

// startFreshmesh starts a control plane with one service, and the data plane.
func startFreshmesh(ctx context.Context, s setup, endpoints []string) (_ *proxy, err error) {
	dir, err := os.MkdirTemp("", "bench-freshmesh-")
	if err != nil {
		return nil, err
	}
	stop := func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			stop()
		}
	}()
	f, err := os.Create(filepath.Join(dir, "echo.yaml"))
	if err != nil {
		return nil, err
	}
	if err := manifest.Execute(f, map[string]any{"Protocol": s.speaks(), "Endpoints": endpoints}); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	at := map[string]string{}
	for _, name := range []string{"xds", "server admin", "admin", "outbound", "listen"} {
		if at[name], err = testaddr.Find(ctx, "127.0.0.1"); err != nil {
			return nil, err
		}
	}
	server, err := launch(pinnedTo(ctx, s.LoadCPU, filepath.Join(s.bin, "xds-server"), "serve", "--manifests", dir,
		"--xds-address", at["xds"], "--admin-address", at["server admin"], "--log-level", "error"))
	if err != nil {
		return nil, err
	}
	stop = func() {
		server.stop()
		_ = os.RemoveAll(dir)
	}
	args := []string{
		filepath.Join(s.bin, "dataplane"), "--node-id", "bench", "--xds-address", at["xds"], "--admin-address", at["admin"],
		"--outbound-address", at["outbound"], "--health-address", "", "--drain-time", "1s", "--log-level", "error",
		"--pprof=" + strconv.FormatBool(s.profile != ""),
	}
	address := at["outbound"]
	if s.speaks() == opaque {
		address = at["listen"]
		args = append(args, "--listen", address+"="+authority+",tcp")
	}
	p, err := launch(pinned(ctx, s, args...))
	if err != nil {
		return nil, err
	}
	p.address = address
	stop = func() {
		p.stop()
		server.stop()
		_ = os.RemoveAll(dir)
	}
	if err := ready(ctx, at["admin"]); err != nil {
		return nil, err
	}
	p.version = version(ctx, filepath.Join(s.bin, "dataplane"), "--version")
	whole := *p
	whole.stop = stop
	if s.profile != "" {
		whole.profile = profiler(at["admin"])
	}
	return &whole, nil
}

// profiler gives a function that asks an admin address for a profile.
func profiler(admin string) func(ctx context.Context, seconds int, file string) error {
	return func(ctx context.Context, seconds int, file string) (err error) {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", admin, seconds), http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			return err
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", q.URL, resp.Status)
		}
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, resp.Body)
		return errors.Join(err, f.Close())
	}
}

// ready waits until an admin address says so.
func ready(ctx context.Context, admin string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/ready", http.NoBody)
		if err != nil {
			return err
		}
		q.Close = true
		resp, err := http.DefaultClient.Do(q)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("/ready: %s", resp.Status)
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// manifest is the service echo with each endpoint in a slice of its own.
var manifest = template.Must(template.New("").Funcs(template.FuncMap{
	"host": func(a string) string { return a[:strings.LastIndexByte(a, ':')] },
	"port": port,
}).Parse(`
apiVersion: v1
kind: Service
metadata: {name: echo, annotations: {freshmesh.dev/timeout: 15s, freshmesh.dev/connect-timeout: 5s, freshmesh.dev/max-connections: "10000", freshmesh.dev/max-requests: "10000", freshmesh.dev/max-pending: "10000"}}
spec: {ports: [{name: main, port: 8080, appProtocol: {{.Protocol}} }]}
{{- range $i, $e := .Endpoints}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: echo-{{$i}}, labels: {kubernetes.io/service-name: echo}}
addressType: IPv4
ports: [{name: main, port: {{port $e}} }]
endpoints: [{addresses: [{{host $e}}], conditions: {ready: true}}]
{{- end}}
`))

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }
