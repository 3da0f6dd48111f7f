package kube

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

func TestPace(t *testing.T) {
	const interval = 6 * time.Second
	var p pace
	check := func(what string, limit, grace time.Duration) {
		t.Helper()
		if got := p.limit(time.Second, interval); got != limit {
			t.Errorf("%s: an answer is waited for %v, want %v", what, got, limit)
		}
		if got := p.grace(400*time.Millisecond, interval); got != grace {
			t.Errorf("%s: the grace is %v, want %v", what, got, grace)
		}
	}
	check("nothing is known", time.Second, 400*time.Millisecond)
	p.answered(10 * time.Millisecond)
	check("a fast server", time.Second, 440*time.Millisecond)
	p.answered(time.Second)
	check("one that takes too long", 2*time.Second, 3*time.Second)
	p.answered(2 * time.Second)
	check("one that takes even longer", 3*time.Second, 3*time.Second)
	for range 8 {
		p.answered(10 * time.Millisecond)
	}
	check("it is fast again", time.Second, 440*time.Millisecond)
}

// TestQuietOnASlowMachine: a timer that fires late does not judge before what came meanwhile can have been read.
func TestQuietOnASlowMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var times atomic.Int64
		fire := func() { times.Add(1) }
		q := newQuiet(3*time.Second, time.Second, fire)
		defer q.stop()
		if q.over(time.Now().Add(5*time.Second)) || q.due.IsZero() {
			t.Fatal("it fires two seconds late, and is over at once")
		}
		q.heard(3 * time.Second)
		time.Sleep(2 * time.Second) // bubble time
		if q.over(time.Now()) {
			t.Error("over before its time")
		}
		time.Sleep(1100 * time.Millisecond) // bubble time
		if fired := times.Load(); fired != 1 {
			t.Errorf("fired %d times after the patience, want once", fired)
		}
		q.heard(time.Second)
		time.Sleep(2 * time.Second) // bubble time
		if times.Load() != 1 {
			t.Error("it fires again")
		}
		stopped := newQuiet(time.Second, time.Second, fire)
		stopped.stop()
		stopped.heard(time.Second)
		time.Sleep(2 * time.Second) // bubble time
		if times.Load() != 1 {
			t.Error("it fires although it was stopped")
		}
	})
}

// TestLateIsNotDeaf: a change that the watch has not brought yet is missing only
// where the watch has passed it, or stands still for as long as this server's pace allows.
func TestLateIsNotDeaf(t *testing.T) {
	const interval = 6 * time.Second
	for _, test := range []struct {
		name string
		// answer is how long the server takes for a list.
		answer time.Duration
		// arrives is when the change arrives, counted from the list; 0 for never.
		arrives time.Duration
		// busy: the watch brings something older all the time.
		busy bool
		// passed: the watch goes on behind the change without it.
		passed bool
		deaf   bool
		// begins is when the watch begins, counted from the list; 0 for one that is there.
		begins time.Duration
		// within is when the check is over, counted from the list.
		within time.Duration
	}{
		{"it arrives at once", time.Millisecond, 100 * time.Millisecond, false, false, false, 0, 500 * time.Millisecond},
		{"it never does", time.Millisecond, 0, false, false, true, 0, 500 * time.Millisecond},
		{"a slow server, and it arrives late", 300 * time.Millisecond, 1500 * time.Millisecond, false, false, false, 0, 1700 * time.Millisecond},
		{"a slow server, and it never does", 300 * time.Millisecond, 0, false, false, true, 0, 1700 * time.Millisecond},
		{"a busy watch, and it arrives late", time.Millisecond, 3 * time.Second, true, false, false, 0, 3500 * time.Millisecond},
		{"a watch that never arrives there", time.Millisecond, 0, true, false, true, 0, 7 * time.Second},
		{"a watch that has passed it", time.Millisecond, 0, false, true, true, 0, 500 * time.Millisecond},
		{"no watch, until it arrives", time.Millisecond, 2 * time.Second, false, false, false, 1900 * time.Millisecond, 2500 * time.Millisecond},
		{"no watch at all", time.Millisecond, 0, false, false, false, time.Hour, 7 * time.Second},
		{"a watch that has just begun, and stands still", time.Millisecond, 0, false, false, true, 300 * time.Millisecond, 1300 * time.Millisecond},
		{"a busy watch that passes it", time.Millisecond, 0, true, true, true, 0, 900 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewForClient(nil, "api", Config{CheckInterval: interval})
				f := s.feeds[mesh.KindService]
				key := mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "a"}
				old, now := form{"1", "10"}, form{"1", "900"}
				f.held.begin(map[mesh.Key]form{key: old}, "100", false)
				f.list = func(context.Context, kubernetes.Interface, metav1.ListOptions) (runtime.Object, error) {
					time.Sleep(test.answer) // bubble time
					return &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "1000"}, Items: []corev1.Service{{
						ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: types.UID(now.uid), ResourceVersion: now.version},
					}}}, nil
				}
				if test.begins > 0 {
					f.health.requestFailed(f.kind, errors.New("no"), true, time.Now())
				}
				_, cancel := f.restarts.begin(t.Context())
				defer cancel()
				done, over := make(chan struct{}), time.Time{}
				go func() {
					defer close(done)
					f.compare(t.Context(), &check{})
					over = time.Now()
				}()
				time.Sleep(test.answer) // bubble time
				listed, arrived := time.Now(), false
				for version := 101; ; version++ { // the watch
					if isDone(done) {
						break
					}
					since := time.Since(listed)
					if test.begins > 0 && since >= test.begins {
						f.health.watching(f.kind)
						test.begins = 0
					}
					switch {
					case arrived:
					case test.arrives > 0 && since >= test.arrives:
						f.held.put(key, now)
						f.held.advance(now.version)
						arrived = true
					case test.passed && since >= 300*time.Millisecond:
						f.held.advance("1001")
					case test.busy:
						f.held.advance(strconv.Itoa(version))
					}
					time.Sleep(50 * time.Millisecond) // bubble time
				}
				if took := over.Sub(listed); took > test.within {
					t.Errorf("the check took %v after the list, want %v at most", took, test.within)
				}
				if got := f.restarts.asked() == deaf; got != test.deaf {
					t.Errorf("deaf: %v, want %v", got, test.deaf)
				}
			})
		})
	}
}

func isDone(done chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// TestNotConverted: an object that cannot be converted was delivered all the same, and no watch is deaf for it.
func TestNotConverted(t *testing.T) {
	s := NewForClient(nil, "api", Config{})
	f := s.feeds[mesh.KindService]
	key := mesh.Key{Kind: mesh.KindService, Namespace: "default", Name: "Not.A.Label"}
	o := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "1", ResourceVersion: "5"}}
	if err := f.Add(o); err != nil {
		t.Fatal(err)
	}
	if d := f.held.differs(map[mesh.Key]form{key: {"1", "5"}}, "10"); d.reason != "" {
		t.Errorf("it is %s", d.reason)
	}
}
