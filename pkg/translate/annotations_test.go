package translate_test

import (
	"testing"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"pgregory.net/rapid"
)

// TestAnyAnnotation: whatever the text, the service is served with resources
// that clients accept, and a text that is not understood is one problem.
func TestAnyAnnotation(t *testing.T) {
	texts := rapid.OneOf(
		rapid.String(),
		rapid.StringMatching(`-?[0-9]{0,12}(ms|s|h)?`),
		rapid.StringMatching(`(http=/[a-z]{0,3}|tcp|grpc(=[a-z.]{0,5})?|window=[1-9]s|ejection|overload)(, ?(interval=1s|healthy=[0-9]|aggression=[0-9.]{1,3}|overload))?`),
		rapid.StringMatching(`(on|off|consecutive-5xx|interval|on=5xx|attempts|http|8080)(=[0-9]{0,3}(s|%|\|5xx)?)?(, ?(on=unavailable|attempts=3|interval=1s))?`),
	)
	all := []string{
		"lb-policy", "connect-timeout", "max-connections", "max-pending", "max-requests", "outlier", "retry",
		"opaque-ports", "skip-ports", "drain", "max-retries", "slow-start", "panic-threshold", "close-established", "health-check", "unknown",
	}
	rapid.Check(t, func(t *rapid.T) {
		name := pick(t, all)
		svc := echo()
		svc.Annotations = map[string]string{name: texts.Draw(t, "text")}
		s := newState()
		s.apply(t, puts(svc, echoSlice("1", "10.0.0.1"))...)
		s.check(t)
		if len(s.names(mesh.TypeCluster)) != 1 {
			t.Fatalf("the service is not served")
		}
		problems := s.Problems()
		if len(problems) > 1 || len(problems) == 1 && problems[0].Field != "metadata.annotations[freshmesh.dev/"+name+"]" {
			t.Fatalf("problems %v", problems)
		}
		if name == "unknown" && len(problems) == 0 {
			t.Fatalf("an unknown annotation is no problem")
		}
		if len(problems) == 0 {
			return
		}
		plain := newState()
		plain.apply(t, puts(echo(), echoSlice("1", "10.0.0.1"))...)
		for name, r := range plain.resources {
			if string(r.Body) != string(s.resources[name].Body) {
				t.Fatalf("%v: a wrong value changed it", name)
			}
		}
	})
}
