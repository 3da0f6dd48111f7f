// Package logging makes the one logger of a program, and routes what the
// libraries say (klog of client-go, grpclog of grpc-go) into it.
//
// New may be called by anybody. Route changes process-wide state of those
// libraries: a program calls it once, before it uses them.
package logging

import (
	"io"
	"time"

	"github.com/freshmesh/freshmesh/pkg/config"
	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// New gives a logger by that name which writes whole lines to out: text, or one JSON object a line.
func New(out io.Writer, name string, c config.Log) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       name,
		Level:      hclog.LevelFromString(c.Level),
		Output:     out,
		JSONFormat: c.Format == "json",
		TimeFormat: time.RFC3339Nano,
	})
}

// Route makes klog and grpclog write to log, by the names "kubernetes" and "grpc".
func Route(log hclog.Logger) {
	klog.SetLogger(logr.New(sink{log: log.Named("kubernetes")}))
	grpclog.SetLoggerV2(grpcLogger{log.Named("grpc")})
}
