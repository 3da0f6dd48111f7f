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
	// MetadataNamespace is the key of a cluster's filter_metadata under which what
	// xDS has no field for stands.
	MetadataNamespace = "freshmesh.dev"
	// CloseOnEjectionKey and CloseOnOverloadKey are booleans there: whether an
	// ejection, and a limit lowered below what is active, close what is established.
	CloseOnEjectionKey = "close_on_ejection"
	CloseOnOverloadKey = "close_on_overload"
	// DrainKey and TimeoutKey are durations there, as text: how long what is
	// established on an endpoint that leaves may last (0: for ever), and how long a request may take.
	DrainKey   = "drain"
	TimeoutKey = "timeout"
	// OpaqueKey, SkipKey and ProxyProtocolKey are booleans there: whether the
	// port carries no HTTP, is not for a proxy, wants a PROXY header; AliasKey is
	// the name of the cluster that this one stands for.
	OpaqueKey        = "opaque"
	SkipKey          = "skip"
	ProxyProtocolKey = "proxy_protocol"
	AliasKey         = "alias"
	// RetryKey is an object there: when a request that failed is sent again.
	// Its keys are the list of conditions as text, a number, and a duration as text.
	RetryKey              = "retry"
	RetryOnKey            = "on"
	RetryAttemptsKey      = "attempts"
	RetryPerTryTimeoutKey = "per_try_timeout"
)
