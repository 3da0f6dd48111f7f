package inject

import (
	"strings"
	"testing"
)

// TestListenSaysWhatIsWrong: the error names the part that is wrong, as the program does.
func TestListenSaysWhatIsWrong(t *testing.T) {
	for value, want := range map[string]string{
		":9200=echo:8080,htpp":        `":9200=echo:8080,htpp": protocol "htpp" is neither tcp nor http`,
		"9200=echo:8080,htpp":         `protocol "htpp" is neither tcp nor http`,
		"9200=echo:8080":              `"9200" is not an address such as`,
		":80=web :81=echo,http,proxy": `":81=echo,http,proxy": proxy is only for tcp`,
		":80=web :81":                 `":81": names no cluster`,
		":80=":                        `":80=": names no cluster`,
		":99999=web":                  `port "99999" is not a number from 0 to 65535`,
		"web:80=web":                  `"web" is not an IP address`,
		"[::ffff:1.2.3.4]:80=web":     `"::ffff:1.2.3.4" is no IPv6 address`,
		" \t":                         "want ADDRESS=CLUSTER[,tcp|http][,proxy], separated by spaces",
	} {
		if err := judgeListen(value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
	}
}
