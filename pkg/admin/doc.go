// Package admin is the HTTP side of the control plane: is it alive and ready,
// what does every node hold, what does the store hold, ask again, metrics, and
// a web page that shows the audit.
//
//	GET  /livez                          200 while the process serves HTTP at all
//	GET  /readyz                         200 once the source has synced; the body says how the source is
//	GET  /metrics                        Prometheus
//	GET  /audit[?node=]                  ack.Audit; a node that is not known gives an audit without nodes
//	GET  /explain?node=&cluster=[&endpoint=]  history.Story: how a node came to what it holds of a cluster
//	GET  /resources?type=[&name=][&node=]  what the store holds, of one type; &node= as that node sees it
//	GET  /versions?type=                 the versions that resources have and had, to compare replicas
//	GET  /drain?endpoint=                200 once nobody uses it, 504 at the timeout; the body says who does
//	     or ?namespace=&pod=  [&timeout=30s]
//	POST /resync[?node=][&name=]         send again
//	GET  /debug/pprof/                   only where it is switched on
//	GET  /[?node=][&refresh=SECONDS]     the web page
//
// Ready means: fit to serve proxies. A server whose source synced and then
// went away stays ready, since it serves what is known, proves it to every
// proxy, and a restart or a traffic switch would cure nothing; the body says
// that the source is away or behind, which part of it, for how long and why, and so do /audit and the
// metric freshmesh_source_lag_seconds, on which to alert. Before the first
// sync it is not ready: it knows nothing that it could serve.
//
// Every answer but the page, the metrics and pprof is JSON; an error is
// {"error": "…"} with a status that fits. It has no authentication of its own:
// bind it to an address that only operators reach. A POST from another web
// site's page is refused.
//
// What it shows it takes from the interfaces in this package, called from the
// goroutines of requests: implementations must be safe for concurrent use.
package admin
