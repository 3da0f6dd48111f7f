// Package static reads raw xDS resources from a watched directory, to be served
// beside those that are translated from Kubernetes.
//
// # What is read
//
// Files and moments are those of package directory. A file holds any number of
// documents; a document is either
//
//   - a DiscoveryResponse, as in the files that Envoy's path_config_source reads:
//     `resources` is a list of messages with "@type"; the other fields say
//     nothing here, or
//   - one message with "@type".
//
// Any message type counts that Envoy's v3 API has, whether freshmesh generates
// it or not: clusters, assignments, listeners, routes, and also Runtime (RTDS),
// Secret (SDS), TypedExtensionConfig (ECDS), ScopedRouteConfiguration (SRDS),
// VirtualHost (VHDS). A resource's name is the message's own: cluster_name of an
// assignment, name of any other. A message whose resource name is another one,
// or that has none, stands in an envoy.service.discovery.v3.Resource, whose name counts.
//
// # What is wrong
//
// A field that the message does not have is a Problem with its file and line,
// and the resource stands without it. A type that is unknown, a value that does
// not fit its field, and a resource without a name make the file invalid, with
// the meaning that package directory gives to that. Values are not judged
// otherwise: whether a client takes them, its ACK or NACK says.
//
// # Concurrency
//
// All state belongs to the goroutine in Run. Status may be called from anywhere.
package static
