// Package dataplane assembles the proxy: discovery feeds endpoints, the
// listeners of package proxy lease from them, and the admin side shows both.
//
// New opens every listener, so that an address in use is known before anything
// runs. Run owns all goroutines and returns when all have ended. When its
// context ends it drains:
//
//	serving ──ctx ends──▶ draining: /ready fails, responses say Connection: close
//	                      (GOAWAY in HTTP/2), listeners still accept
//	        ──nothing in flight for a second, or the drain time──▶
//	                      listeners close, what is left gets the grace time, then all is closed
package dataplane
