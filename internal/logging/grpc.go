package logging

import (
	"fmt"
	"os"
	"strings"

	"github.com/hashicorp/go-hclog"
)

// grpcLogger lets grpclog write to hclog. What grpc-go calls information is a
// trace to an operator, and its warnings (each failed connection attempt) are
// for debugging: whoever owns the connection reports what matters. Safe for
// concurrent use. It implements grpclog.LoggerV2.
type grpcLogger struct{ log hclog.Logger }

func (g grpcLogger) Info(args ...any)   { g.write(hclog.Trace, fmt.Sprint(args...)) }
func (g grpcLogger) Infoln(args ...any) { g.write(hclog.Trace, fmt.Sprintln(args...)) }
func (g grpcLogger) Infof(format string, args ...any) {
	g.write(hclog.Trace, fmt.Sprintf(format, args...))
}
func (g grpcLogger) Warning(args ...any)   { g.write(hclog.Debug, fmt.Sprint(args...)) }
func (g grpcLogger) Warningln(args ...any) { g.write(hclog.Debug, fmt.Sprintln(args...)) }
func (g grpcLogger) Warningf(format string, args ...any) {
	g.write(hclog.Debug, fmt.Sprintf(format, args...))
}
func (g grpcLogger) Error(args ...any)   { g.write(hclog.Warn, fmt.Sprint(args...)) }
func (g grpcLogger) Errorln(args ...any) { g.write(hclog.Warn, fmt.Sprintln(args...)) }
func (g grpcLogger) Errorf(format string, args ...any) {
	g.write(hclog.Warn, fmt.Sprintf(format, args...))
}
func (g grpcLogger) Fatal(args ...any)                 { g.fatal(fmt.Sprint(args...)) }
func (g grpcLogger) Fatalln(args ...any)               { g.fatal(fmt.Sprintln(args...)) }
func (g grpcLogger) Fatalf(format string, args ...any) { g.fatal(fmt.Sprintf(format, args...)) }

// V holds back what only a developer of grpc-go wants.
func (g grpcLogger) V(verbosity int) bool { return verbosity <= 0 || g.log.IsTrace() }

func (g grpcLogger) write(level hclog.Level, message string) {
	g.log.Log(level, "library message", "text", strings.TrimSpace(message))
}

func (g grpcLogger) fatal(message string) {
	g.write(hclog.Error, message)
	os.Exit(1) // the contract of grpclog.LoggerV2
}
