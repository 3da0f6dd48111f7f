// Package replicas is what the commands have in common that ask control planes
// (audit, explain, drain): the flag --server, the servers behind it (behind a
// name with several addresses each of them), asking one, and making what it
// says fit for a terminal.
//
// It keeps nothing but a Client's connections, and is safe for concurrent use.
package replicas

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Default is asked when no other server is named.
const Default = "http://127.0.0.1:18080"

// lookupTime bounds the resolving of one name.
const lookupTime = 5 * time.Second

// Lookup gives the addresses of a host; nil means the system's resolver.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// Flag adds the flag --server, which may be repeated; its values are for Servers.
func Flag(flags *pflag.FlagSet, values *[]string) {
	flags.StringArrayVar(values, "server", []string{Default}, "admin `URL` of a server; repeat it for each replica, or give a name with all their addresses")
}

// Servers gives the BaseURLs of what --server says; none means Default.
func Servers(values []string) ([]string, error) {
	if len(values) == 0 {
		return []string{Default}, nil
	}
	return BaseURLs("--server", values)
}

// BaseURLs gives each URL once, without a slash at its end; "host:port" counts
// as http. The error names flag.
func BaseURLs(flag string, texts []string) ([]string, error) {
	var out []string
	for _, text := range texts {
		base, err := baseURL(flag, text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, base) {
			out = append(out, base)
		}
	}
	return out, nil
}

func baseURL(flag, text string) (string, error) {
	full := text
	if !strings.Contains(full, "://") {
		full = "http://" + full
	}
	u, err := url.Parse(full)
	if err != nil {
		return "", fmt.Errorf("%s %q: not a URL", flag, text)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%s %q: want http://HOST:PORT", flag, text)
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// Replica is one server to ask.
type Replica struct {
	// URL is its base URL. Behind a name with several addresses it has the address.
	URL string
	// Err says why the name leads nowhere.
	Err error
}

// Expand gives every server that the base URLs lead to, in their order, each
// once. An https URL stays as it is, since its certificate is for the name; so
// does localhost, which is one server whatever families it has.
func Expand(ctx context.Context, lookup Lookup, bases []string) []Replica {
	if lookup == nil {
		lookup = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	var out []Replica
	for _, base := range bases {
		for _, r := range expand(ctx, lookup, base) {
			if !slices.ContainsFunc(out, func(o Replica) bool { return o.URL == r.URL }) {
				out = append(out, r)
			}
		}
	}
	return out
}

func expand(ctx context.Context, lookup Lookup, base string) []Replica {
	u, err := url.Parse(base)
	if err != nil {
		return []Replica{{URL: base, Err: fmt.Errorf("read URL: %w", err)}}
	}
	if _, bad := netip.ParseAddr(u.Hostname()); bad == nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return []Replica{{URL: base}}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	all, err := lookup(ctx, u.Hostname())
	switch {
	case err != nil:
		return []Replica{{URL: base, Err: fmt.Errorf("look up %s: %w", u.Hostname(), err)}}
	case len(all) == 0:
		return []Replica{{URL: base, Err: errors.New("the name has no address")}}
	case len(all) == 1:
		return []Replica{{URL: base}}
	}
	out := make([]Replica, 0, len(all))
	slices.SortFunc(all, netip.Addr.Compare)
	for _, ip := range all {
		one := *u
		one.Host = ip.Unmap().String()
		if ip.Unmap().Is6() {
			one.Host = "[" + one.Host + "]"
		}
		if port := u.Port(); port != "" {
			one.Host += ":" + port
		}
		out = append(out, Replica{URL: one.String()})
	}
	return out
}
