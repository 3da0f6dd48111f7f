//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/testaddr"
)

// peer starts a program with a configuration file made from text, in which .Address is where it listens.
func peer(ctx context.Context, s setup, endpoints []string, file, text string, command func(path, address string) []string) (*proxy, error) {
	dir, err := os.MkdirTemp("", "bench-dataplane-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	address, err := testaddr.Find(ctx, "127.0.0.1")
	if err != nil {
		remove()
		return nil, err
	}
	var conf bytes.Buffer
	t := template.Must(template.New(file).Funcs(template.FuncMap{"port": port}).Parse(text))
	if err := t.Execute(&conf, map[string]any{
		"Address": address, "Dir": dir, "Endpoints": endpoints,
		"HTTP2": s.speaks().http2(), "GRPC": s.speaks() == grpc, "TCP": s.speaks() == opaque,
	}); err != nil {
		remove()
		return nil, err
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, conf.Bytes(), 0o600); err != nil {
		remove()
		return nil, err
	}
	cmd := pinned(ctx, s, command(path, address)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &out, append(os.Environ(), "HOME="+dir)
	p, err := launch(cmd)
	if err != nil {
		remove()
		return nil, err
	}
	stop := p.stop
	p.stop = func() { stop(); remove() }
	p.address = address
	if err := p.accepts(ctx); err != nil {
		p.stop()
		return nil, fmt.Errorf("%w: %s", err, out.String())
	}
	return p, nil
}

// version is the first line of what a program says of itself.
func version(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return strings.TrimSpace(line)
}

// ofPip gives the path of a program in what pip installs, which it does first where that is not there.
func ofPip(ctx context.Context, tool *interoptest.Tool, path ...string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("the root of the module: %w", err)
	}
	dir, err := tool.Install(strings.TrimSpace(string(root))) //nolint:contextcheck // it has a time limit of its own
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{dir}, path...)...), nil
}

func startHAProxy(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	path, err := interoptest.Program{Name: "haproxy", Package: "haproxy"}.Install(ctx)
	if err != nil {
		return nil, err
	}
	p, err := peer(ctx, s, endpoints, "haproxy.cfg", haproxyConfig, func(file, _ string) []string { return []string{path, "-db", "-f", file} })
	if err == nil {
		p.version = version(ctx, path, "-v")
	}
	return p, err
}

// streamModule is nginx's for TCP, as Debian installs it.
const streamModule = "/usr/lib/nginx/modules/ngx_stream_module.so"

func startNginx(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	if s.speaks() == h2c {
		return nil, fmt.Errorf("%w: it speaks HTTP/2 to endpoints for gRPC only", errNotHere)
	}
	path, err := interoptest.Program{Name: "nginx", Package: "nginx-light"}.Install(ctx)
	if err != nil {
		return nil, err
	}
	config := nginxConfig
	if s.speaks() == opaque {
		config = nginxStreamConfig
		if _, err := os.Stat(streamModule); err != nil {
			if err := interoptest.InstallPackage(ctx, "libnginx-mod-stream"); err != nil {
				return nil, err
			}
		}
	}
	p, err := peer(ctx, s, endpoints, "nginx.conf", config, func(file, _ string) []string {
		return []string{path, "-c", file, "-p", filepath.Dir(file), "-e", filepath.Join(filepath.Dir(file), "error.log")}
	})
	if err == nil {
		p.version = version(ctx, path, "-v")
	}
	return p, err
}

func startTraefik(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	path, err := ofPip(ctx, interoptest.TraefikTool, "bin", "traefik")
	if err != nil {
		return nil, err
	}
	metrics, err := testaddr.Find(ctx, "127.0.0.1")
	if err != nil {
		return nil, err
	}
	p, err := peer(ctx, s, endpoints, "dynamic.yaml", traefikConfig, func(file, address string) []string {
		return []string{
			path, "--global.checknewversion=false", "--global.sendanonymoususage=false", "--log.level=ERROR",
			"--entrypoints.in.address=" + address, "--entrypoints.metrics.address=" + metrics,
			"--metrics.prometheus=true", "--metrics.prometheus.entrypoint=metrics",
			"--metrics.prometheus.addentrypointslabels=true", "--metrics.prometheus.addserviceslabels=true",
			"--providers.file.filename=" + file,
		}
	})
	if err == nil {
		p.version = version(ctx, path, "version")
	}
	return p, err
}

func startCaddy(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	if s.speaks() == opaque {
		return nil, errNotHere
	}
	path, err := ofPip(ctx, interoptest.CaddyTool, "bin", "caddy")
	if err != nil {
		return nil, err
	}
	p, err := peer(ctx, s, endpoints, "Caddyfile", caddyConfig, func(file, _ string) []string {
		return []string{path, "run", "--config", file, "--adapter", "caddyfile"}
	})
	if err == nil {
		p.version = version(ctx, path, "version")
	}
	return p, err
}

func startEnvoy(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	path := s.envoy
	if path == "" {
		var err error
		if path, err = ofPip(ctx, interoptest.EnvoyTool, "envoy", "_bin", "envoy"); err != nil {
			return nil, err
		}
	}
	p, err := peer(ctx, s, endpoints, "envoy.yaml", envoyConfig, func(file, _ string) []string {
		return []string{path, "--config-path", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"}
	})
	if err == nil {
		p.version = version(ctx, path, "--version")
	}
	return p, err
}
