package redirect

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommandLine(t *testing.T) {
	for _, test := range []struct {
		args []string
		want Rules
		err  string
	}{
		{nil, DefaultRules(), ""},
		{
			[]string{"--proxy-uid=7", "--outbound-port=1", "--inbound-port=2", "--health-port=3", "--skip-outbound-ports=4,5", "--skip-inbound-ports=6", "--skip-uids=0,8"},
			Rules{ProxyUID: 7, OutboundPort: 1, InboundPort: 2, HealthPort: 3, SkipOutboundPorts: []uint16{4, 5}, SkipInboundPorts: []uint16{6}, SkipUIDs: []uint32{0, 8}},
			"",
		},
		{[]string{"--skip-uids=root"}, Rules{}, `--skip-uids: "root" is not a number from 0 to 4294967295`},
		{[]string{"--skip-outbound-ports=0"}, Rules{}, `--skip-outbound-ports: "0" is not a number from 1 to 65535`},
		{[]string{"--proxy-uid=0"}, Rules{}, "the proxy's user cannot be root"},
		{[]string{"--outbound-port=15006"}, Rules{}, "want two ports"},
		{[]string{"--skip-inbound-ports=15001"}, Rules{}, "inbound port 15001 cannot be skipped"},
		{[]string{"--health-port=15001"}, Rules{}, "inbound port 15001 cannot be skipped"},
		{[]string{"now"}, Rules{}, `unexpected argument "now"`},
	} {
		r, _, err := parse(test.args, &bytes.Buffer{})
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%q: %v, want %s", test.args, err, test.err)
			}
			continue
		}
		if diff := cmp.Diff(test.want, r); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", test.args, err, diff)
		}
	}
}

func TestExitCodes(t *testing.T) {
	var out, errs bytes.Buffer
	if code := Main([]string{"--help"}, &out, &errs); code != 0 || !strings.HasPrefix(out.String(), "Usage: dataplane redirect") || errs.Len() > 0 {
		t.Errorf("help: %d, %q, %q", code, &out, &errs)
	}
	if code := Main([]string{"--x"}, &out, &errs); code != 2 || !strings.HasPrefix(errs.String(), "dataplane redirect: unknown flag") {
		t.Errorf("unknown flag: %d, %q", code, &errs)
	}
}
