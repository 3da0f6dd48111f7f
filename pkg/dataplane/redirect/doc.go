// Package redirect leads a network namespace's TCP connections to the proxy in
// it: the command "dataplane redirect", the step that runs before the
// containers of a pod whose connections are to be captured. Package capture is the
// receiving side.
//
// It writes one nftables table of its own, "inet freshmesh", in one transaction,
// which replaces what an earlier run wrote; nothing else is touched. It needs
// CAP_NET_ADMIN, and Linux 5.2 for NAT in the inet family.
//
//	output      of another user than the proxy's, not over the loopback interface,
//	            not to a port that is skipped ──▶ the outbound port
//	prerouting  not over the loopback interface, not to a port that is
//	            skipped ──▶ the inbound port
//
// So nobody outside reaches the outbound listener, though it is on all addresses:
// what goes to its port is led to the inbound one. That port cannot be skipped.
//
// What the proxy itself sends leaves as it is, or it would go around in circles:
// so it needs a user of its own. UDP passes untouched, and with it DNS.
//
// Connections are led away when they are made. One that is there already stays as it is.
package redirect
