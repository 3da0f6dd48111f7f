// Package apiproxy is a proxy that a test puts between a Kubernetes client and
// an API server, kubetest's or a real one, to break what real ones break:
//
//	p := apiproxy.Start(t, "http://"+api.Address, nil)
//	source, _ := kube.New(kube.Config{Kubeconfig: p.Kubeconfig()})
//	p.Set(func(f *apiproxy.Faults) { f.Silent["endpointslices"] = true })
//
// For a real API server the target is the URL of its kubeconfig, and the
// transport that of rest.TransportFor: it carries the credentials and the
// trust. The client needs neither: it speaks plain HTTP/1.1 to the proxy.
//
// # Faults
//
// Faults names resources by their plural ("endpointslices", "services", "pods",
// "nodes", "namespaces", or any other), and "" stands for all of them:
//
//   - Silent: watches stay open, and nothing passes: no event, no bookmark, no
//     end. That goes for new ones too. A watch from which something was kept
//     back stays silent for good, for its bytes have a gap; so a cure shows only
//     on new watches, and Set ends the old ones that are silent no more.
//   - Hang: lists and gets are not answered, until they hang no more or the
//     client gives up. Watches work.
//   - Status: every request is answered with this code (429, 403, 500, …);
//     WatchStatus: only watches are.
//   - Delay: each request waits so long before it is passed on.
//
// Besides, Cut closes all connections of now, and Stop and Start close and open
// the port, which stays the same. Record, Rewind and Resume play an API server
// that was restored from a backup: between Rewind and Resume all is answered from
// the record, with the resource versions of then. Watches then deliver nothing:
// the restored server is quiet. (kubetest.Server.Rewind is a server that goes on
// from there, and uses versions anew.)
//
// # Concurrency
//
// All methods are safe for concurrent use, except Start and Stop, which belong
// to the test's goroutine. Everything ends with the test.
package apiproxy
