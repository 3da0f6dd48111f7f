package conformance

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
)

// runTime bounds one run of a client.
const runTime = time.Minute

// mesh starts a control plane and the data plane; services are in the default
// namespace with port 8080: name → appProtocol and addresses.
func mesh(t *testing.T, services map[string]meshtest.Service) *interoptest.Dataplane {
	t.Helper()
	manifests := meshtest.NewManifests(t)
	clusters := map[string]string{}
	for name, s := range services {
		s.Name = name
		manifests.Put(s)
		clusters[interoptest.ClusterName(name)] = "http"
	}
	control := meshtest.StartControl(t, manifests.Source(), meshtest.Policy)
	return interoptest.StartDataplane(t, control.XDS, clusters)
}

// echo gives back what it is sent, piece by piece, with a field, and its length
// as a trailer. /bytes?n=N is that many bytes.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Field", r.Header.Get("X-Field"))
	if text := r.URL.Query().Get("n"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, strings.Repeat("y", n))
		return
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		_, _ = io.WriteString(w, "Hello!")
		return
	}
	// HTTP/1.1 in both directions at once is not what servers do by default.
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("Trailer", "X-Length")
	// The first read asks for the body, where the client waits for that. Flushing keeps Go from finding out the
	// length of a short body: with one, HTTP/1.1 has no trailers.
	buf := make([]byte, 32<<10)
	n, total := 0, 0
	var err error
	for err == nil {
		n, err = r.Body.Read(buf)
		total += n
		_, _ = w.Write(buf[:n])
		w.(http.Flusher).Flush()
	}
	if err == io.EOF { //nolint:errorlint // as readers do it
		w.Header().Set("X-Length", strconv.Itoa(total))
	}
}

// goServer is Go's own, for HTTP/1.1 and for HTTP/2 by prior knowledge.
func goServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: http.HandlerFunc(echo), Protocols: &p, ReadHeaderTimeout: runTime}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
	return l.Addr().String()
}

// program starts a server that writes its port to standard output.
func program(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	interoptest.Start(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return "127.0.0.1:" + strings.TrimSpace(line)
}

// script gives the path of a program in testdata.
func script(name string) string { return filepath.Join("testdata", name) }

// run runs a client to its end, which must be a success.
func run(t *testing.T, cmd *exec.Cmd) (output string) {
	t.Helper()
	cmd.WaitDelay = 5 * time.Second
	timer := time.AfterFunc(runTime, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(cmd.Args, " "), err, interoptest.Tail(string(out), 40))
	}
	return string(out)
}

// wantNoFailure: the data plane had no reason of its own to fail any request, as it counted.
func wantNoFailure(t *testing.T, d *interoptest.Dataplane) {
	t.Helper()
	for line := range strings.Lines(meshtest.Get(t, d.Admin, "/stats/prometheus")) {
		if strings.HasPrefix(line, "freshmesh_requests_total{") && !strings.Contains(line, `reason="none"`) {
			t.Errorf("counted: %s", line)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
