package program

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/hashicorp/go-hclog"
)

// withSignals gives a context that the first SIGTERM or SIGINT ends. After a
// second one the process exits with 128 + its number, as a shell reports a
// death by signal. stop must be called; it waits for the goroutine.
func withSignals(parent context.Context, log hclog.Logger) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case s := <-signals:
			log.Info("stopping", "signal", s.String())
			cancel()
		case <-stopped:
			return
		}
		select {
		case s := <-signals:
			log.Warn("exiting at once", "signal", s.String())
			code := 1
			if number, ok := s.(syscall.Signal); ok {
				code = 128 + int(number)
			}
			os.Exit(code)
		case <-stopped:
		}
	})
	return ctx, func() {
		signal.Stop(signals)
		close(stopped)
		wg.Wait()
		cancel()
	}
}
