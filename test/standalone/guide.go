package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// guide says what to try, with the addresses that are in use. pid gives the
// process of a program, so that nobody kills by a name that others have too; 0 for none.
func (p *plan) guide(o options, pid func(name string) int) string {
	domain := p.server.ClusterDomain
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("")
	line("The mesh is up. Try, in another terminal:")
	line("")
	line("  A request, by authority:")
	line("    curl -H 'Host: echo.default.svc.%s:8080' http://%s/", domain, p.dataplane.OutboundAddress)
	line("  The same over HTTP/2, as gRPC speaks it, by the short name:")
	line("    curl --http2-prior-knowledge -H 'Host: echo:8080' http://%s/", p.dataplane.OutboundAddress)
	for _, l := range p.dataplane.Listen {
		line("  TCP to %s (type a line):", l.Cluster)
		line("    curl -s telnet://%s", l.Address)
	}
	line("  What each node holds, and whether that is current:")
	line("    %s audit --server http://%s", filepath.Join(o.bin, "xds-server"), p.server.AdminAddress)
	line("  How it came to that, of one cluster, with times:")
	line("    %s explain --server http://%s --node %s --cluster echo.default:8080", filepath.Join(o.bin, "xds-server"), p.server.AdminAddress, p.dataplane.NodeID)
	line("  The data plane's endpoints and their health:")
	line("    curl http://%s/clusters", p.dataplane.AdminAddress)
	line("")
	line("  Then change an address in %s (127.0.0.2 to 127.0.0.3, say)", filepath.Join(p.manifests, "echo.yaml"))
	line("  and ask again.")
	said := false
	for _, b := range p.backends {
		process := pid(b.Name)
		if process == 0 {
			continue
		}
		if !said {
			line("  Or kill a backend, and see it ejected in /clusters; this terminal then says how to bring it back:")
			said = true
		}
		line("    kill %-8d # %s", process, b.Name)
	}
	line("")
	line("Ctrl-C stops everything.")
	return b.String()
}
