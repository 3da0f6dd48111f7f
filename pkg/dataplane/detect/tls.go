package detect

const (
	recordHandshake = 0x16
	clientHello     = 0x01
	recordHeader    = 5
)

// classifyTLS wants a record of TLS 1.x that begins a ClientHello.
func classifyTLS(b []byte) Protocol {
	if len(b) > 1 && b[1] != 3 || len(b) > 2 && b[2] > 4 {
		return Opaque
	}
	if len(b) > recordHeader {
		if b[recordHeader] == clientHello {
			return TLS
		}
		return Opaque
	}
	return Undecided
}
