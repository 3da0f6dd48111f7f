//go:build linux

package main

// One thread; retries, timeouts and counters as they come.
const haproxyConfig = `
global
  nbthread 1
  maxconn 4000
defaults
  mode {{if .TCP}}tcp{{else}}http{{end}}
  timeout client 1h
  timeout connect 5s
  timeout server {{if .TCP}}1h{{else}}15s{{end}}
  timeout http-request 30s
  option redispatch
  retries 2
  {{- if .TCP}}
  option splice-auto
  {{- end}}
frontend in
  bind {{.Address}}{{if .HTTP2}} proto h2{{end}}
  default_backend out
backend out
  balance leastconn
  {{- if not .TCP}}
  http-reuse always
  {{- end}}
{{- range $i, $e := .Endpoints}}
  server s{{$i}} {{$e}} {{if $.HTTP2}}proto h2{{else if not $.TCP}}pool-max-conn 1024{{end}}
{{- end}}
`

// One process, which is master and worker. The zone makes counters and choices those of all workers.
const nginxConfig = `
daemon off;
master_process off;
worker_processes 1;
pid {{.Dir}}/pid;
error_log {{.Dir}}/error.log;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path {{.Dir}}/b; proxy_temp_path {{.Dir}}/p; fastcgi_temp_path {{.Dir}}/f; uwsgi_temp_path {{.Dir}}/u; scgi_temp_path {{.Dir}}/s;
  keepalive_requests 1000000000;
  keepalive_timeout 1h;
  client_header_timeout 30s;
  upstream out {
    zone out 64k;
    least_conn;
    {{- range .Endpoints}}
    server {{.}};
    {{- end}}
    keepalive 1024;
    keepalive_requests 1000000000;
  }
  server {
    listen {{.Address}}{{if .HTTP2}} http2{{end}};
    location = /stub_status { stub_status; }
    location / {
      {{- if .GRPC}}
      grpc_pass grpc://out;
      grpc_connect_timeout 5s;
      grpc_read_timeout 15s;
      {{- else}}
      proxy_pass http://out;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_connect_timeout 5s;
      proxy_read_timeout 15s;
      {{- end}}
    }
  }
}
`

const nginxStreamConfig = `
load_module ` + streamModule + `;
daemon off;
master_process off;
worker_processes 1;
pid {{.Dir}}/pid;
error_log {{.Dir}}/error.log;
events { worker_connections 8192; }
stream {
  access_log off;
  upstream out {
    zone out 64k;
    least_conn;
    {{- range .Endpoints}}
    server {{.}};
    {{- end}}
  }
  server {
    listen {{.Address}};
    proxy_pass out;
    proxy_connect_timeout 5s;
    proxy_timeout 1h;
  }
}
`

const traefikConfig = `
{{- if .TCP}}
tcp:
  routers:
    all: {rule: "HostSNI(` + "`*`" + `)", service: out, entryPoints: [in]}
  services:
    out:
      loadBalancer:
        servers:
        {{- range .Endpoints}}
        - address: {{.}}
        {{- end}}
{{- else}}
http:
  routers:
    all: {rule: "PathPrefix(` + "`/`" + `)", service: out, entryPoints: [in]}
  services:
    out:
      loadBalancer:
        serversTransport: bounded
        servers:
        {{- range .Endpoints}}
        - url: {{if $.HTTP2}}h2c{{else}}http{{end}}://{{.}}
        {{- end}}
  serversTransports:
    bounded:
      maxIdleConnsPerHost: 1024
      forwardingTimeouts: {dialTimeout: 5s, responseHeaderTimeout: 15s}
{{- end}}
`

const caddyConfig = `
{
  admin off
  auto_https off
  persist_config off
  metrics
  log {
    level ERROR
  }
  servers {
    protocols h1 h2c
    timeouts {
      read_header 30s
    }
  }
}
http://:{{port .Address}} {
  bind 127.0.0.1
  reverse_proxy {{range .Endpoints}} {{if $.HTTP2}}h2c://{{end}}{{.}}{{end}} {
    lb_policy least_conn
    {{- if .GRPC}}
    flush_interval -1
    {{- end}}
    transport http {
      dial_timeout 5s
      response_header_timeout 15s
      keepalive_idle_conns_per_host 1024
    }
  }
}
`

const envoyConfig = `
static_resources:
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: {{port .Address}} }}
    filter_chains:
    - filters:
      {{- if .TCP}}
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: in
          cluster: out
      {{- else}}
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
      {{- end}}
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
