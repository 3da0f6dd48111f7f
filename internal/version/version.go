// Package version knows which build this is.
package version

import "runtime/debug"

// linked is set by the Makefile: -ldflags "-X github.com/freshmesh/freshmesh/internal/version.linked=v1.2.3".
var linked string

// String gives the version that was linked in; else the module's version, or
// "dev" where there is none, with the commit that it was built from when the build knows it.
func String() string {
	if linked != "" {
		return linked
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	return describe(info)
}

func describe(info *debug.BuildInfo) string {
	name := info.Main.Version
	if name == "" || name == "(devel)" {
		name = "dev"
	}
	var revision, modified string
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value
		case "vcs.modified":
			modified = setting.Value
		}
	}
	if revision == "" || name != "dev" {
		return name
	}
	name += "-" + revision[:min(12, len(revision))]
	if modified == "true" {
		name += "-modified"
	}
	return name
}
