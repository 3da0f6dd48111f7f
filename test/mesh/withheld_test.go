package mesh

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/meshtest"
	"github.com/freshmesh/freshmesh/internal/testwait"
	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/controlplane"
	"github.com/freshmesh/freshmesh/pkg/dataplane"
)

const (
	nodeBehind  = `freshmesh_refresh_total{verdict="node-behind"}`
	storeBehind = `freshmesh_refresh_total{verdict="store-behind"}`
	current     = `freshmesh_refresh_total{verdict="current"}`
)

// patient is a policy under which the server's probes heal nothing while a test runs.
var patient = ack.Policy{ProbeInterval: time.Minute, AckTimeout: time.Minute}

// patientProxy keeps the data plane's own watchdog from healing anything.
func patientProxy(c *dataplane.Config) { c.SilenceTimeout = 62 * time.Second }

// rareReports keeps the regular load reports from healing anything.
func rareReports(c *controlplane.Config) { c.ReportInterval = time.Minute }

// The first outage of the design: an update never reaches the proxy although the
// connection is healthy, and the old endpoint dies. The connect failure must
// bring the new endpoint within 5 s. The ack timeout is long, so that nothing
// else heals it.
func TestWithheldUpdateIsHealedByTheConnectFailure(t *testing.T) {
	w := withhold(t, nil)
	w.old.Kill()
	if !w.answeredByNew(t) {
		t.Fatal("the new endpoint was not used within 5 s")
	}
	if w.relay.streams.Load() != w.streams {
		t.Error("healed on another stream: nothing may have been reset")
	}
	// The re-subscription may heal it before the report arrives; the server hears of it in any case.
	testwait.Within(t, 5*time.Second, "reported", func() bool {
		return w.control.Log.Has("failures reported", "node=proxy-1", w.old.Address) &&
			w.control.Metric(t, nodeBehind)+w.control.Metric(t, current) >= 1
	})
}

// The same without the way back: it must fail, or the test above proves nothing.
func TestWithheldUpdateStaysWithoutTheWayBack(t *testing.T) {
	w := withhold(t, func(c *dataplane.Config) { c.DisableRefresh = true })
	w.old.Kill()
	if w.answeredByNew(t) {
		t.Fatal("healed although the refresh path is off: the test does not bite")
	}
}

// Only the load report reaches the server, and no subscription: the server finds
// that the node is behind, and sends again on the stream as it is.
func TestReportAloneHealsANodeBehind(t *testing.T) {
	w := withhold(t, nil)
	w.relay.muteRequests.Store(true)
	w.old.Kill()
	if !w.answeredByNew(t) {
		t.Fatal("the new endpoint was not used within 5 s")
	}
	if w.relay.streams.Load() != w.streams {
		t.Error("healed on another stream: nothing may have been reset")
	}
	testwait.Within(t, 5*time.Second, "in the log and the metrics with the verdict node-behind", func() bool {
		return w.control.Log.Has("failures reported", "verdict=node-behind", "node=proxy-1", w.old.Address) &&
			w.control.Metric(t, nodeBehind) >= 1
	})
}

// The same with the reports lost too: the stream as it is must not heal, or the
// test above proves nothing. The data plane's watchdog ends it after some seconds.
func TestNothingHealsANodeBehindWithoutReport(t *testing.T) {
	w := withhold(t, nil)
	w.relay.muteRequests.Store(true)
	w.relay.muteReports.Store(true)
	w.old.Kill()
	if w.answeredByNew(t) && w.relay.streams.Load() == w.streams {
		t.Fatal("healed on the same stream although nothing reached the server: the test does not bite")
	}
}

// withheld is a mesh of one service whose proxy was not told of an endpoint's successor.
type withheld struct {
	old, fresh *meshtest.Backend
	control    *meshtest.Control
	relay      *relay
	proxy      *meshtest.Proxy
	client     *meshtest.Client
	// streams is how many ADS streams had begun by then.
	streams int32
}

// withhold runs one, up to where the update is lost and the old endpoint still
// answers. Only what its caller does can heal it.
func withhold(t *testing.T, edit func(*dataplane.Config)) *withheld {
	t.Helper()
	w := &withheld{old: meshtest.StartBackend(t, "old"), fresh: meshtest.StartBackend(t, "new")}
	manifests := meshtest.NewManifests(t)
	manifests.Service("echo", w.old.Address)
	w.control = meshtest.StartControl(t, manifests.Source(), patient, rareReports)
	w.relay = startRelay(t, w.control.XDS)
	w.proxy = meshtest.StartProxy(t, w.relay.address, func(c *dataplane.Config) {
		patientProxy(c)
		if edit != nil {
			edit(c)
		}
	})
	w.client = &meshtest.Client{Address: w.proxy.Outbound}
	t.Cleanup(w.client.Close)
	testwait.Within(t, 5*time.Second, "answered", func() bool { return answers(w.client) == "old" })

	w.relay.drop.Store(1)
	manifests.Service("echo", w.fresh.Address)
	testwait.Within(t, 5*time.Second, "withheld by the relay", func() bool { return w.relay.drop.Load() == 0 })
	w.streams = w.relay.streams.Load()
	return w
}

// answeredByNew sends requests until the new endpoint answers; false after 5 s.
func (w *withheld) answeredByNew(t *testing.T) bool {
	t.Helper()
	return answeredWithin(w.client, "new", 5*time.Second)
}

// answeredWithin sends requests until the named backend answers; false when it did not in time.
func answeredWithin(c *meshtest.Client, backend string, d time.Duration) bool {
	for until := time.Now().Add(d); time.Now().Before(until); {
		if answers(c) == backend {
			return true
		}
	}
	return false
}

// answers sends one request, and gives the name of the backend that answered; "" for none.
func answers(c *meshtest.Client) string {
	status, body, err := c.Get(authority)
	if err != nil || status != 200 {
		return ""
	}
	return body
}
