package upstream

import (
	"bytes"
	"testing"

	"golang.org/x/net/http2"
)

// FuzzPreface: what is found does not depend on how the bytes come, and is what the framer of x/net/http2 finds.
func FuzzPreface(f *testing.F) {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
	_ = framer.WriteWindowUpdate(0, 1000)
	f.Add(b.Bytes(), uint8(1))
	_ = framer.WriteGoAway(0, http2.ErrCodeNo, []byte("bye"))
	f.Add(b.Bytes(), uint8(3))
	f.Add([]byte{0, 0, 0, 4, 0, 128, 0, 0, 0}, uint8(0))
	f.Add([]byte("220 mail.example.com ESMTP\r\n"), uint8(9))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), uint8(200))
	f.Fuzz(func(t *testing.T, b []byte, chunk uint8) {
		var whole, parts preface
		whole.read(b)
		for rest := b; len(rest) > 0; {
			n := min(len(rest), int(chunk)+1)
			parts.read(rest[:n])
			rest = rest[n:]
		}
		settings, goAway := whole.settings.Load(), whole.goAway.Load()
		if parts.settings.Load() != settings || parts.goAway.Load() != goAway {
			t.Errorf("whole: %t %t, in parts: %t %t", settings, goAway, parts.settings.Load(), parts.goAway.Load())
		}
		r := bytes.NewReader(b)
		found := map[http2.FrameType]bool{}
		for first := true; ; first = false {
			h, err := http2.ReadFrameHeader(r)
			if err != nil || first && (h.Type != http2.FrameSettings || h.StreamID != 0) {
				break
			}
			found[h.Type] = true
			if _, err := r.Seek(int64(h.Length), 1); err != nil {
				break
			}
		}
		if found[http2.FrameSettings] != settings || found[http2.FrameGoAway] != goAway {
			t.Errorf("found %t %t, and the framer %v", settings, goAway, found)
		}
	})
}
