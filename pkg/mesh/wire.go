package mesh

// The words that our control plane and our data plane say to each other in
// standard messages; neither imports the other.
const (
	// DataplaneUserAgent is the data plane's user_agent_name in the node message.
	// Such a node applies what it gets before it acknowledges.
	DataplaneUserAgent = "freshmesh-dataplane"
	// ConnectFailuresKey is the key in an endpoint's metadata of a load report
	// under which the data plane gives the number of dials that failed, since the
	// standard fields count them by locality only.
	ConnectFailuresKey = "connect_failures"
)
