package http1

import "bytes"

// Limits bound a head.
type Limits struct {
	// Bytes is the greatest length of a head, its empty line included; 0 is 64 KiB.
	Bytes int
	// Fields is the greatest number of its fields; 0 is 128.
	Fields int
}

func (l Limits) withDefaults() Limits {
	if l.Bytes <= 0 {
		l.Bytes = 64 << 10
	}
	if l.Fields <= 0 {
		l.Fields = 128
	}
	return l
}

// whole tells whether buf begins with a whole head, and gives its length; 0 if
// more must come. A bare line feed is an error at once: its sender may believe that it has finished.
func whole(buf []byte, l Limits) (int, error) {
	for at := 0; ; {
		i := bytes.IndexByte(buf[at:], '\n')
		if i < 0 {
			break
		}
		at += i + 1
		if at < 2 || buf[at-2] != '\r' {
			return 0, errBareLF
		}
		if at+1 < len(buf) && buf[at] == '\r' && buf[at+1] == '\n' {
			if at+2 > l.Bytes {
				return 0, errHeadTooLarge
			}
			return at + 2, nil
		}
	}
	if len(buf) >= l.Bytes {
		return 0, errHeadTooLarge
	}
	return 0, nil
}

// Unfinished tells whether buf is no whole head yet and has nothing wrong in it, where Parse has found so of its first had
// bytes: a head that comes in thousands of pieces is not read from its beginning for each. False may be said of any, and Parse knows.
func Unfinished(buf []byte, had int, l Limits) bool {
	if had < len(versionOf1) || len(buf) >= l.withDefaults().Bytes {
		return false
	}
	for at := had; at < len(buf); at++ {
		i := bytes.IndexByte(buf[at:], '\n')
		if i < 0 {
			break
		}
		// It ends a line of the head, or the head.
		if at += i; buf[at-1] != '\r' || buf[at-2] == '\n' {
			return false
		}
	}
	return true
}
