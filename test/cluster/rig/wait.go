package rig

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ForTest starts a cluster for one test binary's tests, and shows its logs when a test fails.
func ForTest(t *testing.T, c Config) *Rig {
	t.Helper()
	log := &logWriter{}
	c.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: log})
	r, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\nnodes:\n%s", r.Logs(15), log.String())
		}
		r.Close()
	})
	return r
}

// Until waits for a condition to hold, and fails the test after d, with what it said last.
func Until(t testing.TB, d time.Duration, what string, holds func(ctx context.Context) (ok bool, state any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last any
	for {
		ok, state := holds(ctx)
		if ok {
			return
		}
		if ctx.Err() == nil {
			last = state // not that time is over
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v: not %s: %v", d, what, last)
		}
	}
}

// Decode reads one object from YAML, strictly.
func Decode[T any](t testing.TB, text string) *T {
	t.Helper()
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return object
}

// Namespace makes one that ends with the test, and gives its name. Nobody waits for its end.
func (r *Rig) Namespace(t testing.TB, name string, labels map[string]string) string {
	t.Helper()
	n := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: name + "-", Labels: labels}}
	made, err := r.Admin.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Admin.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s: %v", made.Name, err)
		}
	})
	// Its service account and the CA's config map come from controllers.
	Until(t, 3*time.Minute, "usable namespace", func(ctx context.Context) (bool, any) {
		_, err := r.Admin.CoreV1().ServiceAccounts(made.Name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = r.Admin.CoreV1().ConfigMaps(made.Name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		return err == nil, err
	})
	return made.Name
}

// Condition gives the status of a pod's condition; "" when it has none.
func Condition(pod *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// logWriter keeps what is written, for several writers.
type logWriter struct {
	mu     sync.Mutex // guards buffer
	buffer bytes.Buffer
}

func (l *logWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.Write(p)
}

func (l *logWriter) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buffer.String()
}
