// Package discovery is the data plane's ADS client: it subscribes to the
// clusters that are used, applies what comes before it acknowledges, keeps the
// last good configuration on disk, and asks again when endpoints turn out dead.
//
// The methods that the rest of the data plane uses, on *Client:
//
//	Run(ctx) error                                    owns the stream until ctx ends
//	Cluster(ctx, name) (*Cluster, error)              subscribes if need be, waits for an answer until ctx ends
//	Subscribe(name)                                   the same without waiting; for --listen
//	Count(cluster string, key mesh.EndpointKey, Load) adds to the next load report; never blocks
//	Distrust(cluster)                                 asks again for the cluster and its endpoints and sends the load report now; coalesced, never blocks
//	Reset(cluster)                                    forgets and asks again; "" for all. What is in force stays in force until answered
//	Status() Status                                   an immutable picture for the admin side
package discovery
