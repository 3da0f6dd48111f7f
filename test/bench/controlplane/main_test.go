package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
)

// The test binary stands in for the program when measure executes it as a server.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "--role" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A small run of everything: the nodes themselves check that each contender
// delivers each change, whole, once, and nothing else.
func TestMeasure(t *testing.T) {
	s := setup{Nodes: 5, Services: 10, Endpoints: 2, Changes: 12, Contenders: contenderNames(), timeout: 30 * time.Second}
	file := filepath.Join(t.TempDir(), "out.json")
	if err := measure(t.Context(), s, file); err != nil {
		t.Fatal(err)
	}
	var r results
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	for i, name := range s.Contenders {
		if run := r.Runs[i]; run.Contender != name || len(run.CPUMillis) != s.Changes || run.With.InUse == 0 {
			t.Errorf("%s has no results: %+v", name, run)
		}
	}
}

func TestReportGivesRatiosToBare(t *testing.T) {
	var out bytes.Buffer
	after := memory{InUse: 2048 * 10, Resident: 4096 * 10}
	err := report(&out, "", results{Setup: setup{Nodes: 10}, Runs: []*run{
		{Contender: "bare", CPUMillis: []float64{3, 1, 2}, LatencyMillis: []float64{1}},
		{Contender: "other", CPUMillis: []float64{7, 5, 100, 3}, LatencyMillis: []float64{1}, With: after, After: after},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(strings.Split(out.String(), "\n")[3])
	want := strings.Fields("other 6 ms 29 ms 100 ms 3.0 1 ms 2 KB 2 KB 4 KB 4 KB")
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is read by hand off the wire agrees with the generated code.
func TestParse(t *testing.T) {
	b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{
		SystemVersionInfo: "s", TypeUrl: "t", Nonce: "n", RemovedResources: []string{"x"},
		Resources: []*discoveryv3.Resource{{Name: "a"}, {Name: "b"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var r reply
	if r.parse(b); r.typeURL != "t" || r.nonce != "n" || r.resources != 2 {
		t.Errorf("reply: %+v", r)
	}
	b, err = proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: "t", ResponseNonce: "n", ResourceNamesSubscribe: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	var q request
	if q.parse(b); q.typeURL != "t" || !q.ack {
		t.Errorf("request: %+v", q)
	}
}
