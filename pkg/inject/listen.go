package inject

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/config"
)

const listenForm = "want ADDRESS=CLUSTER[,tcp|http][,proxy], separated by spaces"

// listener is one of them: an IPv4 address, an IPv6 address in brackets, localhost
// or nothing; a port; a cluster; how it is spoken. The policy has the same
// expression, and as here the address in brackets is looked at apart.
var listener = regexp.MustCompile(`^(` +
	`((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])` +
	`|\[[0-9A-Fa-f:.]+\]|localhost)?` +
	`:(0|[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])` +
	`=[^,\s\pZ\p{Cc}]+(,tcp|,http|,proxy|,tcp,proxy)?$`)

var spaced = regexp.MustCompile(`\S+`)

// judgeListen takes, with its words for what is wrong, what the data plane takes as --listen, but for what nobody
// needs there: spaces of other scripts, empty brackets, zones of IPv6
// addresses, and IPv4 addresses in the guise of IPv6.
func judgeListen(value string) error {
	parts := spaced.FindAllString(value, -1)
	if len(parts) == 0 {
		return errors.New(listenForm)
	}
	for _, part := range parts {
		if _, err := config.ParseListen(part); err != nil {
			return err
		}
		if !listener.MatchString(part) {
			return fmt.Errorf("%q: %s", part, listenForm)
		}
		if inside, ok := strings.CutPrefix(part, "["); ok {
			host, _, _ := strings.Cut(inside, "]")
			if ip, err := netip.ParseAddr(host); err != nil || ip.Is4In6() || ip.Is4() {
				return fmt.Errorf("%q: %q is no IPv6 address", part, host)
			}
		}
	}
	return nil
}
