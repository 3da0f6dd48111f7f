// Package translate turns Kubernetes objects into xDS resources, and into
// Problems where an object says something that cannot be done. It is pure: no
// I/O, no clock, no logger, no goroutine, and of ours it imports package mesh.
//
// A Translator holds the objects it was given and belongs to one goroutine.
// What it gives back is immutable and may be shared; the Shape functions of its
// resources touch nothing of the Translator and may be called at any time.
//
// The same objects give the same bytes, whatever the order of their arrival.
// The unit of work is one service: a change of an object translates the
// services that it touches, and nothing else is looked at.
//
//	Service, EndpointSlice ──▶ their service
//	Node                   ──▶ services with endpoints on it, if its region changed
//	Pod, Namespace         ──▶ none
//	KeepDrained            ──▶ services that list the endpoints
//
// # What a service gives
//
// Each TCP port, and for a headless service each pod host name with each TCP
// port, has one name for all four types:
//
//	<service>.<namespace>.svc.<cluster domain>:<port>
//	<hostname>.<service>.<namespace>.svc.<cluster domain>:<port>
//
//	Cluster      always; EDS, or DNS for host names (ExternalName, FQDN slices)
//	Assignment   of each EDS cluster, empty if need be
//	Listener     an api_listener, unless the port is opaque TCP
//	Route        as the listener
//
// and an entry in the route table "outbound", by which an Envoy routes on
// authority as our data plane does. The table is put together from parts that
// are marshalled with their service, so a change of endpoints leaves it alone.
//
// # Addresses
//
// What the kernel leads to a proxy has an address and no name. For nodes with
// API listeners, which never ask for every cluster, there is a Cluster
// "IP:PORT" for each cluster IP with each TCP port, and for each pod of a headless
// service, ready or not, since DNS gives their addresses to its clients:
//
//	cluster IP   STATIC without endpoints; metadata alias names the service's cluster
//	pod          STATIC with this one endpoint
//
// An address may be of several services; the one whose key sorts first gives
// the cluster's form.
//
// # Which endpoints, and how healthy
//
// For each service port and address family (Kubernetes API, EndpointConditions;
// KEP-1669; kube-proxy's CategorizeEndpoints is the oracle of test/kubeproxy):
//
//	ready (nil: true)                                  HEALTHY
//	not ready, serving (nil: true) and terminating     DRAINING; HEALTHY while nothing is ready
//	anything else                                      left out
//
// What KeepDrained was told stays DRAINING where it terminates, also while nothing is ready; where
// all of a service is like that, it has no endpoint to use, and requests fail (docs/design/0008).
//
// A pod host name takes its health from the whole service, so that a pod that
// terminates beside ready ones drains under its own name too.
//
// An address in several slices counts once, in its best condition; among equals
// the slice whose name sorts first wins. A slice port without a number stands
// for the number of the service port.
//
// Dual stack: IPv4 has priority 0 and IPv6 priority 1; a family alone has
// priority 0. Pods have both addresses, so the second family adds no capacity,
// and the rule for terminating endpoints holds by family: mixed at one priority,
// terminating IPv6 endpoints would share the load with ready IPv4 ones.
//
// # Views
//
// Hints shape an assignment by node and by zone, internalTrafficPolicy Local by
// node, with kube-proxy's rules. DRAINING endpoints stay in every zone's view:
// nobody picks them, and who holds connections to them learns of the drain.
// Pod host names are not shaped: they mean that pod from everywhere.
//
// # Annotations
//
// On a Service, with the prefix freshmesh.dev/. docs/dataplane.md lists them with their
// values and defaults; a test holds the list against the code. A wrong value is a
// Problem and the default holds. A limit of 0 is taken at its word.
//
// What xDS has no field for is in the cluster's filter_metadata["freshmesh.dev"]:
// opaque (bool), skip (bool), proxy_protocol (bool), alias (a cluster's name), drain and timeout (durations as text), close_on_ejection (bool), close_on_overload (bool),
// retry (on: list as text, attempts: number, per_try_timeout: duration as text).
package translate
