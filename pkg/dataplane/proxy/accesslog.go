package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// AccessLog writes a JSON line for each request and each opaque connection
// when it ends. Requests never wait for it: what its queue cannot hold is dropped and counted.
type AccessLog struct {
	out     io.Writer
	queue   chan *entry
	dropped prometheus.Counter
}

// accessQueue is how many lines may wait to be written.
const accessQueue = 4096

// NewAccessLog makes a log that Run writes to out.
func NewAccessLog(out io.Writer, r prometheus.Registerer) (*AccessLog, error) {
	l := &AccessLog{out: out, queue: make(chan *entry, accessQueue), dropped: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "freshmesh_access_log_dropped_total",
		Help: "Lines that the access log lost because they came faster than they could be written.",
	})}
	if err := r.Register(l.dropped); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return l, nil
}

// entry is a line. Times are in seconds, sizes in bytes of the bodies.
type entry struct {
	Time      time.Time `json:"time"`
	Client    string    `json:"client"`
	Protocol  string    `json:"protocol"`
	Method    string    `json:"method,omitempty"`
	Authority string    `json:"authority,omitempty"`
	// Path is without the query, which may hold secrets.
	Path    string `json:"path,omitempty"`
	Cluster string `json:"cluster,omitempty"`
	// Status is 0 where none was sent; GRPCStatus is "" where there is none.
	Status     int             `json:"status,omitempty"`
	GRPCStatus string          `json:"grpcStatus,omitempty"`
	Reason     upstream.Reason `json:"reason"`
	Layer      upstream.Layer  `json:"layer,omitempty"`
	Error      string          `json:"error,omitempty"`
	Seconds    float64         `json:"seconds"`
	// FirstByteSeconds is the time to the headers of the answer; 0 where there was none.
	FirstByteSeconds float64        `json:"firstByteSeconds,omitempty"`
	BytesReceived    int64          `json:"bytesReceived"`
	BytesSent        int64          `json:"bytesSent"`
	Attempts         []attemptEntry `json:"attempts,omitempty"`
	TraceParent      string         `json:"traceparent,omitempty"`
}

func (l *AccessLog) add(e *entry) {
	select {
	case l.queue <- e:
	default:
		l.dropped.Inc()
	}
}

// leaveBehind is how long Run waits at its end for a writer that is stuck.
const leaveBehind = time.Second

// Run writes until ctx ends, and then what is queued. An error is one of
// writing. A writer that hangs costs lines, and at the end a second.
func (l *AccessLog) Run(ctx context.Context) error {
	done := make(chan error, 1)
	go func() { done <- l.write(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(leaveBehind)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	}
}

// write is the loop of Run. Lines are flushed when no other waits.
func (l *AccessLog) write(ctx context.Context) error {
	w := bufio.NewWriterSize(l.out, 64<<10)
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for {
		var e *entry
		select {
		case e = <-l.queue:
		default:
			// Nothing waits, so what there is should be seen.
			if err := w.Flush(); err != nil {
				return fmt.Errorf("write access log: %w", err)
			}
			select {
			case e = <-l.queue:
			case <-ctx.Done():
				if len(l.queue) == 0 {
					return nil
				}
				continue
			}
		}
		if err := lines.Encode(e); err != nil {
			return fmt.Errorf("write access log: %w", err)
		}
	}
}

// entry is what the log says of the request.
func (x *exchange) entry(d describer, reason upstream.Reason, took time.Duration) *entry {
	e := &entry{
		Time: x.began.UTC(), Client: x.conn.remote, Cluster: strings.Clone(x.name), Status: x.status, Reason: reason,
		Seconds: took.Seconds(), FirstByteSeconds: x.firstByte.Seconds(), BytesReceived: x.received, BytesSent: x.sent, Attempts: x.attemptLog,
	}
	d.describe(e)
	if x.err != nil {
		e.Layer, e.Error = reason.Layer(), x.err.Error()
		if x.grpc && e.GRPCStatus == "" {
			e.GRPCStatus = strconv.Itoa(int(reason.GRPC()))
		}
	}
	return e
}
