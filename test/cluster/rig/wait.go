package rig

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// ForTest starts a cluster for one test binary's tests, and shows its logs when a test fails.
func ForTest(t *testing.T, c Config) *Rig {
	t.Helper()
	r, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.Logs(15))
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
	for {
		ok, state := holds(ctx)
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("after %v: not %s: %v", d, what, state)
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
		if err := r.Admin.CoreV1().Namespaces().Delete(context.Background(), made.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("namespace %s: %v", made.Name, err)
		}
	})
	// Its service account and the CA's config map come from controllers.
	Until(t, time.Minute, "usable namespace", func(ctx context.Context) (bool, any) {
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
