package config

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// reload prints a configuration and reads the text back.
func reload(t *testing.T, c Dataplane) Dataplane {
	t.Helper()
	text, err := dataplaneTable(&c).yaml()
	if err != nil {
		t.Fatal(err)
	}
	back := DefaultDataplane()
	if wrong := dataplaneTable(&back).readYAML("printed", []byte(text)); wrong != nil {
		t.Fatalf("%v in\n%s", wrong, text)
	}
	return back
}

// TestPrintedConfigReadsBack: what --print-config prints gives the same settings through --config.
func TestPrintedConfigReadsBack(t *testing.T) {
	value := rapid.OneOf(rapid.SampledFrom([]string{"", "true", "null", "~", "1e3", "0x1f", "- a", "a: b", "# c", "'", `"`, " x ", "*a", "&a", "!t", "2026-11-30", "=", "<<"}),
		rapid.StringOf(rapid.RuneFrom([]rune("ab :#-'\"\\{}[],&*!|>%@`\u00e9\u65e5"))))
	address := rapid.Custom(func(t *rapid.T) string {
		host := rapid.SampledFrom([]string{"", "127.0.0.1", "[::1]", "localhost"}).Draw(t, "host")
		return host + ":" + strconv.Itoa(rapid.IntRange(0, 65535).Draw(t, "port"))
	})
	rapid.Check(t, func(r *rapid.T) {
		c := DefaultDataplane()
		c.NodeID = value.Draw(r, "node")
		c.Pod = value.Draw(r, "pod")
		c.Zone = value.Draw(r, "zone")
		c.StateDir = value.Draw(r, "state")
		c.OutboundAddress = address.Draw(r, "outbound")
		c.XDSAddresses = rapid.SliceOfN(rapid.SampledFrom([]string{"a:1", "[::1]:2", "x.y:3"}), 1, 3).Draw(r, "xds")
		for range rapid.IntRange(0, 3).Draw(r, "listens") {
			c.Listen = append(c.Listen, Listen{
				Address:  address.Draw(r, "address"),
				Cluster:  rapid.StringMatching(`[a-z0-9.:#"'{}=-]+`).Draw(r, "cluster"),
				Protocol: rapid.SampledFrom([]Protocol{TCP, HTTP}).Draw(r, "protocol"),
			})
		}
		if diff := cmp.Diff(c, reload(t, c)); diff != "" {
			r.Errorf("(-printed +read):\n%s", diff)
		}
	})
}

// TestPrintConfigThroughTheDoor does the round trip with the real flags.
func TestPrintConfigThroughTheDoor(t *testing.T) {
	directory := t.TempDir()
	args := []string{"--manifests", directory, "--ack-timeout=1m", "--pprof", "--max-streams=7", "--log-format=json"}
	c, result, err := LoadServer(append(args, "--print-config"), environment(map[string]string{"FRESHMESH_PROBE_INTERVAL": "3s"}))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "printed.yaml")
	if err := os.WriteFile(path, []byte(result.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	back, _, err := LoadServer([]string{"--config", path}, environment(nil))
	if err != nil {
		t.Fatalf("%v in\n%s", err, result.Text)
	}
	if diff := cmp.Diff(c, back); diff != "" {
		t.Errorf("(-printed +read):\n%s", diff)
	}
}

// FuzzYAML: no bytes make the reader panic, and what it accepts survives the round trip.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{"", "node: {id: a}\n", "xds:\n  address: [a:1, b:2]\n", "listen:\n- :1=a,http\n", "a: &a [*a]\n", "{", "node.id: |\n  a\n", "? x\n: y\n", "log: null\n", "---\n---\n", "node: !!binary aGk=\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := DefaultDataplane()
		if wrong := dataplaneTable(&c).readYAML("fuzzed", data); wrong != nil {
			return
		}
		if diff := cmp.Diff(c, reload(t, c)); diff != "" {
			t.Errorf("(-printed +read):\n%s", diff)
		}
	})
}
