package drain

import (
	"cmp"
	"net/netip"
	"strconv"
	"time"
)

// MaxTimeout bounds how long a drain may be waited for; DefaultTimeout is for
// how long where nothing is said.
const (
	MaxTimeout     = 10 * time.Minute
	DefaultTimeout = 30 * time.Second
)

// Target is what is to be drained: an endpoint, or else a pod.
type Target struct {
	Namespace, Pod string
	Endpoint       Endpoint
}

// String gives "pod NS/NAME" or "endpoint IP port PORT".
func (t Target) String() string {
	if t.Pod != "" {
		return "pod " + t.Namespace + "/" + t.Pod
	}
	return "endpoint " + t.Endpoint.Address.String() + " port " + strconv.Itoa(int(t.Endpoint.Port))
}

// Endpoint is an address and a port; the port 0 stands for every port.
type Endpoint struct {
	Address netip.Addr
	Port    uint16
}

// String gives "10.0.0.1:80", or "10.0.0.1:*".
func (e Endpoint) String() string {
	if e.Port != 0 {
		return netip.AddrPortFrom(e.Address, e.Port).String()
	}
	if e.Address.Is6() {
		return "[" + e.Address.String() + "]:*"
	}
	return e.Address.String() + ":*"
}

func compareEndpoints(a, b Endpoint) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
}

// EndpointOf parses IP:PORT.
func EndpointOf(text string) (Endpoint, bool) {
	at, err := netip.ParseAddrPort(text)
	if err != nil || at.Port() == 0 || at.Addr().Zone() != "" {
		return Endpoint{}, false
	}
	return Endpoint{at.Addr().Unmap(), at.Port()}, true
}
