// Package relay relays HTTP/1.1.
package relay
