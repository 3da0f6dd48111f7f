package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/freshmesh/freshmesh/test/cluster/app/report"
)

// recorder counts what the clients see.
type recorder struct {
	mu    sync.Mutex // guards all below
	stats report.Stats
	// since is when it was reset: what was sent before and fails counts no more.
	since time.Time
}

// maxFailures bounds what is remembered word for word.
const maxFailures = 100

func (r *recorder) edit(kind string, f func(*report.Kind)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.stats.Kinds[kind]
	if k == nil {
		k = &report.Kind{Answers: make(map[string]report.Backend)}
		r.stats.Kinds[kind] = k
	}
	f(k)
}

// answered takes an answer: the name of a backend, and what was sent.
func (r *recorder) answered(kind, text string, took time.Duration) {
	name, _, _ := strings.Cut(text, " ")
	r.edit(kind, func(k *report.Kind) {
		k.Sent++
		b := k.Answers[name]
		b.Count++
		b.Last = time.Now()
		if b.First.IsZero() {
			b.First = b.Last
		}
		k.Answers[name] = b
		k.Slowest = max(k.Slowest, took)
	})
}

func (r *recorder) failed(kind string, sent time.Time, err error) {
	r.edit(kind, func(k *report.Kind) {
		if sent.Before(r.since) {
			return
		}
		k.Sent++
		k.Failed++
		if len(k.Failures) == maxFailures {
			k.Failures = slices.Delete(k.Failures, 0, 1)
		}
		k.Failures = append(k.Failures, report.Failure{Sent: sent, At: time.Now(), Text: err.Error()})
	})
}

// conversation is something long-lived: it asks, and gets an answer, or bye.
type conversation interface {
	// ask sends a message and gives its answer; again true: the backend wants the conversation to
	// begin anew elsewhere. err is a message lost.
	ask(ctx context.Context, text string) (answer string, again bool, err error)
	close()
}

// client makes requests of one kind, each once.
type client struct {
	kind   string
	every  time.Duration
	dial   func(context.Context) (conversation, error)
	record *recorder
	// life is how long a conversation lasts, 0 for ever.
	life time.Duration
}

// requestTime bounds one request.
const requestTime = 10 * time.Second

// run asks until ctx ends. An error is counted, and the next request goes out as
// usual, over a new connection.
func (c client) run(ctx context.Context) error {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	var talk conversation
	var began time.Time
	defer func() {
		if talk != nil {
			talk.close()
		}
	}()
	for n := 0; ; n++ {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		if talk != nil && c.life > 0 && time.Since(began) > c.life {
			talk.close()
			talk = nil
		}
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTime)
		talk = c.once(limit, talk, strconv.Itoa(n), func() { began = time.Now() })
		cancel()
	}
}

func (c client) once(ctx context.Context, talk conversation, text string, opened func()) conversation {
	start := time.Now()
	if talk == nil {
		var err error
		if talk, err = c.dial(ctx); err != nil {
			c.record.failed(c.kind, start, fmt.Errorf("open: %w", err))
			return nil
		}
		opened()
		c.record.edit(c.kind, func(k *report.Kind) { k.Opened++ })
	}
	answer, again, err := talk.ask(ctx, text)
	switch {
	case err != nil:
		c.record.failed(c.kind, start, err)
	case !strings.HasSuffix(answer, " "+text):
		c.record.failed(c.kind, start, fmt.Errorf("answer %q to %q", answer, text))
	default:
		c.record.answered(c.kind, answer, time.Since(start))
		if !again {
			return talk
		}
		c.record.edit(c.kind, func(k *report.Kind) { k.Byes++ })
	}
	talk.close()
	return nil
}

// load runs clients of every kind that has a rate, and serves what they saw.
func load(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("app load", pflag.ContinueOnError)
	stats := flags.String("stats", ":9900", "serve what was seen (JSON) here")
	proxy := flags.String("proxy", "127.0.0.1:15001", "the proxy's outbound address")
	host := flags.String("host", "", "the service, without a port")
	tcp := flags.String("tcp-address", "127.0.0.1:9001", "where the proxy takes TCP for the service")
	rate := flags.Float64("rate", 20, "requests a second of each client")
	clients := flags.Int("clients", 2, "of each kind")
	kinds := flags.StringSlice("kinds", []string{"http", "grpc", "stream", "ws", "tcp"}, "kinds of clients")
	life := flags.Duration("life", 0, "of a conversation; 0 for ever")
	gates := flags.StringSlice("gate", nil, "PORT=ADDRESS: let others reach what listens on this pod's loopback interface")
	if err := flags.Parse(args); err != nil {
		return err
	}
	r := &recorder{stats: report.Stats{Kinds: make(map[string]*report.Kind)}}
	group, ctx := errgroup.WithContext(ctx)
	listenStats(ctx, group, *stats, r)
	for _, g := range *gates {
		port, to, _ := strings.Cut(g, "=")
		if err := openGate(ctx, group, ":"+port, to); err != nil {
			return err
		}
	}
	for _, kind := range *kinds {
		dial, err := dialer(kind, *proxy, *host, *tcp, r)
		if err != nil {
			return err
		}
		for range *clients {
			c := client{kind: kind, every: time.Duration(float64(time.Second) / *rate), dial: dial, record: r, life: *life}
			group.Go(func() error { return c.run(ctx) })
		}
	}
	return group.Wait()
}

// listenStats serves GET /stats, and POST /reset.
func listenStats(ctx context.Context, group *errgroup.Group, address string, r *recorder) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		_ = json.NewEncoder(w).Encode(r.stats) // who asked may be gone
	})
	mux.HandleFunc("POST /reset", func(http.ResponseWriter, *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		clear(r.stats.Kinds)
		r.since = time.Now()
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	group.Go(func() error {
		stop := context.AfterFunc(ctx, func() { _ = server.Close() })
		defer stop()
		if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}
