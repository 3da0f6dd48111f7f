package version

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	settings := func(pairs ...string) (s []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			s = append(s, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return s
	}
	for _, test := range []struct {
		info debug.BuildInfo
		want string
	}{
		{debug.BuildInfo{}, "dev"},
		{debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, "dev"},
		{debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}}, "v1.2.3"},
		{debug.BuildInfo{Settings: settings("vcs.revision", "0123456789abcdef", "vcs.modified", "false")}, "dev-0123456789ab"},
		{debug.BuildInfo{Settings: settings("vcs.revision", "0123", "vcs.modified", "true")}, "dev-0123-modified"},
	} {
		if got := describe(&test.info); got != test.want {
			t.Errorf("%v: %q, want %q", test.info.Settings, got, test.want)
		}
	}
}
