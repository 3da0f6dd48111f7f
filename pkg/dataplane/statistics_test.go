package dataplane_test

import (
	"net/http"
	"strings"
	"testing"
)

// What people who know Envoy's /clusters look for, and the same in the metrics.
func TestStatistics(t *testing.T) {
	control, addr := newControl(t)
	a, _ := backend(t, "a")
	control.set(echo, a)
	r := start(t, addr)
	if status, _, body := r.get(echo); status != 200 {
		t.Fatal(status, body)
	}
	for path, wants := range map[string][]string{
		"/clusters": {
			echo + "::default_priority::max_requests::1024\n", echo + "::high_priority::max_retries::3\n",
			echo + "::default_priority::rq_open::false\n", echo + "::default_priority::cx_overflow::0\n", echo + "::phase::serving\n",
			echo + "::" + a + "::cx_total::1\n", echo + "::" + a + "::cx_active::1\n", echo + "::" + a + "::rq_error::0\n",
			echo + "::" + a + "::health_flags::healthy\n", echo + "::" + a + "::success_rate::-1\n", echo + "::" + a + "::sub_zone::\n",
		},
		"/clusters?format=json": {`"max_pending_requests": 1024`, `"priority": "HIGH"`, `"cx_active"`, `"phase": "serving"`},
		"/stats/prometheus": {
			`freshmesh_breaker_open{breaker="rq",cluster="` + echo + `",priority="default"} 0`,
			`freshmesh_breaker_remaining{breaker="cx",cluster="` + echo + `",priority="default"} 1023`,
			`freshmesh_cluster_phase{cluster="` + echo + `",phase="serving"} 1`,
			`freshmesh_cluster_endpoints{cluster="` + echo + `",state="usable"} 1`,
		},
	} {
		_, body := r.admin(http.MethodGet, path)
		for _, want := range wants {
			if !strings.Contains(body, want) {
				t.Errorf("GET %s lacks %q:\n%s", path, want, body)
			}
		}
	}
}
