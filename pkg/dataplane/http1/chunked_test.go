package http1

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestChunkedRefused(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want *Error
	}{
		"no size":                     {"\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"signed size":                 {"+5\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"negative size":               {"-5\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"size with 0x":                {"0x5\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"size with an underscore":     {"0_5\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"space before the size":       {" 5\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"space after the size":        {"5 \r\nhello\r\n0\r\n\r\n", errChunkSize},
		"tab after the size":          {"5\t;a\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"size of 2^64":                {"10000000000000000\r\n", errChunkSize},
		"size of 2^63":                {"8000000000000000\r\n", errChunkSize},
		"zeros without end":           {strings.Repeat("0", 17) + "5\r\n", errChunkSize},
		"bare LF after the size":      {"5\nhello\r\n0\r\n\r\n", errChunkSize},
		"CR and another byte":         {"5\rxhello\r\n0\r\n\r\n", errChunkSize},
		"bare LF in an extension":     {"5;a\nhello\r\n0\r\n\r\n", errChunkExt},
		"NUL in an extension":         {"5;a\x00b\r\nhello\r\n0\r\n\r\n", errChunkExt},
		"CR in an extension":          {"5;a\rb\r\nhello\r\n0\r\n\r\n", errChunkSize},
		"long extension":              {"5;" + strings.Repeat("a", 300) + "\r\nhello\r\n0\r\n\r\n", errChunkExt},
		"data longer than the size":   {"5\r\nhello!\r\n0\r\n\r\n", errChunkEnd},
		"data shorter than the size":  {"6\r\nhello\r\n0\r\n\r\n", errChunkEnd},
		"bare LF after the data":      {"5\r\nhello\n0\r\n\r\n", errChunkEnd},
		"bare LF in the trailers":     {"0\r\nX: y\n\r\n", errBareLF},
		"bare LF after the last":      {"0\r\n\n", errBareLF},
		"obs-fold in the trailers":    {"0\r\nX: y\r\n z\r\n\r\n", errFold},
		"space before the colon":      {"0\r\nX : y\r\n\r\n", errFieldName},
		"a length in the trailers":    {"0\r\nContent-Length: 5\r\n\r\n", errTrailerName},
		"a coding in the trailers":    {"0\r\nTransfer-Encoding: chunked\r\n\r\n", errTrailerName},
		"Host in the trailers":        {"0\r\nHost: a\r\n\r\n", errTrailerName},
		"Connection in the trailers":  {"0\r\nConnection: close\r\n\r\n", errTrailerName},
		"long trailers":               {"0\r\nX: " + strings.Repeat("y", 5000) + "\r\n\r\n", errTrailers},
		"trailers without end":        {"0\r\nX: " + strings.Repeat("y", 5000), errTrailers},
		"nothing but extensions":      {strings.Repeat("1;"+strings.Repeat("e", 200)+"\r\nx\r\n", 60), errChunkOverhead},
		"a chunked request behind it": {"0\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", errFieldName},
	} {
		t.Run(name, func(t *testing.T) {
			var d Chunked
			data, used, done, err := d.Decode([]byte(c.text))
			got, ok := errors.AsType[*Error](err)
			if !ok || got != c.want {
				t.Fatalf("got %q, %d, %v, %v, want %q", data, used, done, err, c.want)
			}
		})
	}
}

// Whatever the parts that it comes in, the body is the same, and what follows it is left alone.
func TestChunkedInParts(t *testing.T) {
	const text = "5;a=b\r\nhello\r\n1\r\n \r\n05\r\nworld\r\n000;x\r\nX-T: 1\r\nx-u:2\r\n\r\nGET / HTTP/1.1\r\n"
	for size := 1; size <= len(text); size++ {
		var c Chunked
		for range 2 {
			c.Reset()
			var body strings.Builder
			rest, done := []byte(text), false
			for !done {
				n := min(size, len(rest))
				data, used, end, err := c.Decode(rest[:n:n])
				if err != nil || !end && used != n {
					t.Fatalf("size %d: %d, %v", size, used, err)
				}
				body.Write(data)
				rest, done = rest[used:], end
			}
			if body.String() != "hello world" || string(rest) != "GET / HTTP/1.1\r\n" || fmt.Sprint(sorted(c.Trailers())) != "[x-t: 1 x-u: 2]" {
				t.Fatalf("size %d: %q, %q, %v", size, body.String(), rest, c.Trailers())
			}
		}
	}
}

func TestPutChunk(t *testing.T) {
	for _, n := range []int{1, 15, 16, 255, 256, 65535, 65536} {
		buf := make([]byte, ChunkRoomBefore+n+ChunkRoomAfter)
		for i := range n {
			buf[ChunkRoomBefore+i] = 'x'
		}
		from, to := PutChunk(buf, ChunkRoomBefore, ChunkRoomBefore+n)
		if got, want := string(buf[from:to]), fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("x", n)); got != want {
			t.Errorf("%d: got %.20q", n, got)
		}
	}
}
