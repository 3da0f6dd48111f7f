package auditlog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Config of a Log. Path is required.
type Config struct {
	Path string
	// MaxBytes bounds one file; 0 means 100 MiB. A line that is longer than that has a file of its own.
	MaxBytes int64
	// MaxFiles is how many files are kept, the one being written included; 0 means 5.
	MaxFiles int
	// Queue bounds the events that wait to be written; 0 means 16,384.
	Queue int
	// Logger and Registerer may be nil.
	Logger     hclog.Logger
	Registerer prometheus.Registerer
}

// Log is an audit log on disk.
type Log struct {
	// set once
	log     hclog.Logger
	queue   chan func() any
	written prometheus.Counter
	// full and failed count lines that were dropped.
	full, failed prometheus.Counter

	// owned by Run
	file *file
	// lost are lines that could not be written since the last that could, and why.
	lost   uint64
	reason string
	// retry is when to write again after a failure; zero while there is none.
	retry time.Time

	// atomic
	// overflow are the lines that did not fit into the queue since that was last said.
	overflow atomic.Uint64
}

// New makes a Log. It touches no file before Run.
func New(c Config) *Log {
	dropped := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "freshmesh_audit_log_dropped_total", Help: "Lines that the audit log does not have, by reason: the queue was full, or a write failed.",
	}, []string{"reason"})
	l := &Log{
		log: c.Logger, queue: make(chan func() any, cmp.Or(c.Queue, 16_384)),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "freshmesh_audit_log_lines_total", Help: "Lines written to the audit log."}),
		full:    dropped.WithLabelValues("queue"), failed: dropped.WithLabelValues("write"),
		file: &file{path: c.Path, maxBytes: cmp.Or(c.MaxBytes, 100<<20), maxFiles: cmp.Or(c.MaxFiles, 5)},
	}
	if l.log == nil {
		l.log = hclog.NewNullLogger()
	}
	if c.Registerer != nil {
		c.Registerer.MustRegister(dropped, l.written)
	}
	return l
}

// Record takes an event. It never blocks; line is called by Run later, once or
// never, and gives what is written as JSON.
func (l *Log) Record(line func() any) {
	select {
	case l.queue <- line:
	default:
		l.overflow.Add(1)
		l.full.Inc()
	}
}

// Dropped is the line that says how many are missing before it.
type Dropped struct {
	Time   time.Time `json:"time"`
	Event  string    `json:"event"` // dropped
	Lines  uint64    `json:"lines"`
	Reason string    `json:"reason"`
}

const (
	// maxBatch bounds the lines of one write.
	maxBatch = 256
	// retryPause is the least time between two tries to write after a failure.
	retryPause = time.Second
)

// Run writes until ctx ends, and then what is queued; it always gives nil.
func (l *Log) Run(ctx context.Context) error {
	defer l.file.close()
	for {
		select {
		case line := <-l.queue:
			l.write(line)
		case <-ctx.Done():
			l.retry = time.Time{} // the last chance
			for {
				select {
				case line := <-l.queue:
					l.write(line)
				default:
					l.write(nil)
					return nil
				}
			}
		}
	}
}

// batch encodes a line, which may be nil for none, and those that are queued behind it.
func (l *Log) batch(line func() any) (lines [][]byte) {
	for n := 0; line != nil; {
		if text := l.encode(line()); text != nil {
			lines = append(lines, text)
		}
		line = nil
		if n++; n < maxBatch {
			select {
			case line = <-l.queue:
			default:
			}
		}
	}
	return lines
}

// write writes a line, and those that are queued behind it. With nil it says
// what is still to be said of lines that are missing.
func (l *Log) write(line func() any) {
	lines := l.batch(line)
	now := time.Now()
	if now.Before(l.retry) {
		l.lose(len(lines))
		return
	}
	overflow := l.overflow.Swap(0)
	if overflow > 0 {
		lines = append(lines, l.encode(Dropped{now, "dropped", overflow, "the queue was full"}))
	}
	if l.lost > 0 {
		lines = append([][]byte{l.encode(Dropped{now, "dropped", l.lost, l.reason})}, lines...)
	}
	if len(lines) == 0 {
		return
	}
	done, err := l.file.append(lines, now)
	l.written.Add(float64(done))
	if done > 0 {
		l.lost = 0
	}
	if err != nil {
		missing := len(lines) - done
		if overflow > 0 { // that was the last of them, and is still to be said
			l.overflow.Add(overflow)
			missing--
		}
		l.fail(err, now, missing)
		return
	}
	if !l.retry.IsZero() {
		l.log.Info("the audit log is written again", "file", l.file.path)
		l.retry, l.reason = time.Time{}, ""
	}
}

func (l *Log) encode(line any) []byte {
	text, err := json.Marshal(line)
	if err != nil {
		l.log.Error("an event cannot be written as JSON", "err", err)
		return nil
	}
	return append(text, '\n')
}

// fail notes that lines were not written, and warns of the first failure in a row.
func (l *Log) fail(err error, now time.Time, lines int) {
	if l.retry.IsZero() {
		l.log.Warn("the audit log cannot be written; what happens meanwhile is not in it", "file", l.file.path, "err", err)
	}
	l.retry, l.reason = now.Add(retryPause), fmt.Sprintf("write failed: %v", err)
	if l.lost > 0 && lines > 0 {
		lines-- // one of them said so of the others
	}
	l.lose(lines)
}

func (l *Log) lose(lines int) {
	l.lost += uint64(lines)
	l.failed.Add(float64(lines))
}
