// Package message is what the relays share: the head of an HTTP message, whatever protocol it came in and
// whatever protocol it leaves in. Field names are in lower case, as HTTP/2 has them (RFC 9113 section 8.2);
// an HTTP/1.1 relay that finds a head unchanged may pass its bytes on as they came.
//
// The strings of a head may lie in memory of the connection that it came from, and are then valid only until
// that connection's next head is read. Who keeps one longer clones it (strings.Clone).
package message

// Field is one header or trailer field.
type Field struct {
	Name, Value string
	// Sensitive fields never enter a compression table (RFC 7541 section 7.1.3).
	Sensitive bool
}

// Request is the head of a request.
type Request struct {
	Method    string
	Scheme    string
	Authority string
	// Path is the request target in origin form with its query, or "*"; "" for CONNECT.
	Path string
	// Protocol is what an upgrade or an extended CONNECT (RFC 8441) asks for, like "websocket"; "" for other requests.
	Protocol string
	Fields   []Field
	// Length is that of the body in bytes, 0 for none; -1 when only its end will tell.
	Length int64
}

// Response is the head of a response, interim ones (1xx) included.
type Response struct {
	Status int
	Fields []Field
	// Length is that of the body in bytes, 0 for none; -1 when only its end will tell.
	Length int64
}
