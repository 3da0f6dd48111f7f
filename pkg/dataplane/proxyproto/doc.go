// Package proxyproto reads and writes the PROXY protocol, version 2
// (haproxy.org/download/2.9/doc/proxy-protocol.txt, section 2.2): who a
// connection was from and where it was going, ahead of its bytes. Pure but for
// the reading; stateless.
package proxyproto
