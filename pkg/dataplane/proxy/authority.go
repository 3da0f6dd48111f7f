package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/dataplane/upstream"
)

// Names turns authorities into cluster names.
type Names struct {
	// Namespace completes a name of one label. Domain is the cluster domain, without dots at its ends.
	Namespace, Domain string
}

// Cluster gives the cluster that an authority names: its host completed to
// <service>.<namespace>.svc.<domain> as a pod's resolver would, and its port,
// 80 when absent. An IP address stays as it is. The error is an
// *upstream.Error with BadAuthority for what can name no service.
func (n Names) Cluster(authority string) (string, error) {
	host, port, err := splitAuthority(authority)
	if err != nil {
		return "", badAuthority(authority, err)
	}
	if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && addr.Zone() == "" {
		return netip.AddrPortFrom(addr, port).String(), nil
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if err := checkHost(host); err != nil {
		return "", badAuthority(authority, err)
	}
	switch suffix := ".svc." + n.Domain; {
	case strings.HasSuffix(host, suffix):
	case strings.HasSuffix(host, ".svc"):
		host += "." + n.Domain
	case !strings.Contains(host, "."):
		host += "." + n.Namespace + suffix
	default:
		host += suffix
	}
	return host + ":" + strconv.Itoa(int(port)), nil
}

// splitAuthority is net.SplitHostPort with an optional port (RFC 3986 section 3.2).
func splitAuthority(a string) (host string, port uint16, err error) {
	if strings.Contains(a, "@") {
		return "", 0, errors.New("user information is not allowed")
	}
	host = a
	text := ""
	if i := strings.LastIndexByte(a, ':'); i >= 0 && !strings.Contains(a[i:], "]") {
		host, text = a[:i], a[i+1:]
	}
	if strings.Contains(host, ":") && !(strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")) {
		return "", 0, errors.New("more than one colon")
	}
	if text == "" {
		return host, 80, nil
	}
	p, err := strconv.ParseUint(text, 10, 16)
	if err != nil || p == 0 || text[0] == '+' {
		return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", text)
	}
	return host, uint16(p), nil
}

// checkHost allows DNS names with underscores (RFC 1123 section 2.1).
func checkHost(host string) error {
	if host == "" {
		return errors.New("no host")
	}
	if len(host) > 253 {
		return errors.New("host is longer than 253 bytes")
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("host has a label of %d bytes", len(label))
		}
		for _, c := range []byte(label) {
			if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
				return fmt.Errorf("host has the byte %q", c)
			}
		}
	}
	return nil
}

func badAuthority(authority string, err error) error {
	return &upstream.Error{
		Reason: upstream.BadAuthority, Unsent: true, Unanswered: true,
		Err: fmt.Errorf("authority %q: %w", authority, err),
	}
}
