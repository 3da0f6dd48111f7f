package lrs

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A stream that reports without pause is read at the pace, and the client's
// sends wait for it.
func TestStreamIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out sink
		stream := open(t, serve(t, New(Config{Sink: &out})))
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for i := 0; stream.Send(request("n", cluster(fmt.Sprint(i), locality(1)))) == nil && i < 100_000; i++ {
			}
		}()
		time.Sleep(10 * time.Second) // bubble time
		synctest.Wait()
		out.mu.Lock()
		n := len(out.reports)
		out.mu.Unlock()
		if most := paceBurst + int(10*time.Second/paceInterval) + 1; n > most || n < most-5 {
			t.Errorf("%d reports in 10 s, want about %d", n, most)
		}
		select {
		case <-sent:
			t.Error("the client was never held back")
		default:
		}
		// Reports in the usual rhythm are never held back.
		calm := open(t, serve(t, New(Config{Sink: &out})))
		for range 100 {
			began := time.Now()
			if err := calm.Send(request("calm", cluster("c", locality(1)))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if time.Since(began) != 0 {
				t.Fatal("held back")
			}
			time.Sleep(10 * time.Second) // bubble time
		}
	})
}

func TestNodeStreamsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := serve(t, New(Config{Sink: &sink{}, MaxNodeStreams: 2}))
		begin := func(node string) error {
			stream := open(t, client)
			if err := stream.Send(request(node)); err != nil {
				t.Fatal(err)
			}
			_, err := stream.Recv()
			return err
		}
		first := open(t, client)
		if err := first.Send(request("a")); err != nil {
			t.Fatal(err)
		}
		for i, want := range []codes.Code{codes.OK, codes.ResourceExhausted} {
			if err := begin("a"); status.Code(err) != want {
				t.Errorf("stream %d of a: %v, want %v", i+2, err, want)
			}
		}
		if err := begin("b"); err != nil {
			t.Errorf("another node: %v", err)
		}
		// A stream that ends makes room.
		if err := first.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := begin("a"); err != nil {
			t.Errorf("after the end of one: %v", err)
		}
	})
}
