package logging

import (
	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
)

// sink lets klog, which speaks logr, write to hclog. A value is immutable and
// safe for concurrent use. It implements logr.LogSink.
type sink struct{ log hclog.Logger }

// Init has nothing to learn from logr.
func (s sink) Init(logr.RuntimeInfo) {}

// Enabled follows levelOf.
func (s sink) Enabled(verbosity int) bool {
	switch levelOf(verbosity) {
	case hclog.Info:
		return s.log.IsInfo()
	case hclog.Debug:
		return s.log.IsDebug()
	default:
		return s.log.IsTrace()
	}
}

// Info logs at the level of the verbosity.
func (s sink) Info(verbosity int, message string, pairs ...any) {
	s.log.Log(levelOf(verbosity), message, plain(pairs)...)
}

// Error logs a Warn: the library carries on, so no person is needed.
func (s sink) Error(err error, message string, pairs ...any) {
	s.log.Warn(message, append(plain(pairs), "err", err)...)
}

// WithValues gives a sink that adds pairs to each line.
func (s sink) WithValues(pairs ...any) logr.LogSink { return sink{s.log.With(plain(pairs)...)} }

// WithName gives a sink whose lines carry the name too.
func (s sink) WithName(name string) logr.LogSink { return sink{s.log.Named(name)} }

// levelOf follows Kubernetes' habit: 0 is for the operator, 1 to 4 for
// debugging, the rest are traces.
func levelOf(verbosity int) hclog.Level {
	switch {
	case verbosity <= 0:
		return hclog.Info
	case verbosity <= 4:
		return hclog.Debug
	default:
		return hclog.Trace
	}
}

// plain gives a copy of pairs in which what a value wants logged in its place stands for it.
func plain(pairs []any) []any {
	out := make([]any, 0, len(pairs)+2)
	for _, v := range pairs {
		if m, ok := v.(logr.Marshaler); ok {
			v = m.MarshalLog()
		}
		out = append(out, v)
	}
	return out
}
