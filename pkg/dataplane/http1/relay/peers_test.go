package relay_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/pkg/dataplane/http1/relay"
)

// curl has a parser of its own, and so has Python.
func TestCurl(t *testing.T) {
	curl, err := exec.LookPath("curl")
	if err != nil {
		t.Skip("curl is missing")
	}
	r := start(t, relay.Config{}, backend(t, echo), backend(t, echo))
	big := filepath.Join(t.TempDir(), "big")
	content := bytes.Repeat([]byte("0123456789"), 500_000)
	if err := os.WriteFile(big, content, 0o600); err != nil {
		t.Fatal(err)
	}
	url := "http://" + r.address + "/"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"get":                {[]string{url}, ""},
		"head":               {[]string{"-I", url}, "HTTP/1.1 200 OK"},
		"post":               {[]string{"-d", "hello", url}, "hello"},
		"twice":              {[]string{"-d", "hello", url, url}, "hellohello"},
		"http1.0":            {[]string{"-0", "-d", "hello", url}, "hello"},
		"chunked":            {[]string{"-H", "Transfer-Encoding: chunked", "-d", "hello", url}, "hello"},
		"large":              {[]string{"--data-binary", "@" + big, url}, string(content)},
		"large, expect":      {[]string{"-H", "Expect: 100-continue", "--data-binary", "@" + big, url}, string(content)},
		"large, chunked":     {[]string{"-T", big, "-H", "Transfer-Encoding: chunked", url}, string(content)},
		"as through a proxy": {[]string{"-x", url, "-d", "hello", "http://a.example/"}, "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, problems bytes.Buffer
			cmd := exec.CommandContext(t.Context(), curl, append([]string{"-sS", "--max-time", "60"}, c.args...)...)
			cmd.Stdout, cmd.Stderr = &out, &problems
			if err := cmd.Run(); err != nil {
				t.Fatalf("%v: %s", err, problems.String())
			}
			if got := out.String(); name == "head" && !strings.HasPrefix(got, c.want) || name != "head" && got != c.want {
				t.Errorf("got %d bytes %.80q", len(got), got)
			}
		})
	}
}

const pythonClient = `
import http.client, sys
c = http.client.HTTPConnection(sys.argv[1], timeout=60)
for size in (0, 1, 1000, 100000, 3000000):
    body = b"x" * size
    c.request("POST", "/", body=body)
    r = c.getresponse()
    assert r.status == 200 and r.read() == body, size
    c.request("POST", "/", body=iter([body[:10], body[10:]]), encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
    r = c.getresponse()
    assert r.status == 200 and r.read() == body, size
    c.request("HEAD", "/")
    r = c.getresponse()
    assert r.status == 200 and r.read() == b"", size
print("ok")
`

const pythonServer = `
import http.server, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = sys.argv[1]
    def log_message(self, *a): pass
    def do_GET(self):
        body = b"y" * 100000
        self.send_response(200)
        if self.path == "/length":
            self.send_header("Content-Length", str(len(body)))
        elif self.path == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if self.path == "/chunked":
            self.wfile.write(b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body))
        else:
            self.wfile.write(body)
            self.close_connection = self.path != "/length"
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
print(s.server_port, flush=True)
s.serve_forever()
`

func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing")
	}
	return path
}

func TestPythonClient(t *testing.T) {
	r := start(t, relay.Config{}, backend(t, echo), backend(t, echo))
	out, err := exec.CommandContext(t.Context(), python(t), "-c", pythonClient, r.address).CombinedOutput()
	if err != nil || string(out) != "ok\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestPythonServer(t *testing.T) {
	for version, paths := range map[string][]string{"HTTP/1.0": {"/length", "/end"}, "HTTP/1.1": {"/length", "/chunked", "/end"}} {
		cmd := exec.CommandContext(t.Context(), python(t), "-c", pythonServer, version)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		var port int
		if _, err := fmt.Fscan(out, &port); err != nil {
			t.Fatal(err)
		}
		r := start(t, relay.Config{}, fmt.Sprintf("127.0.0.1:%d", port))
		c := r.dial()
		for _, path := range append(paths, paths...) {
			c.send("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, body := c.response("GET"); resp.StatusCode != 200 || body != strings.Repeat("y", 100000) {
				t.Errorf("%s %s: status %d, %d bytes", version, path, resp.StatusCode, len(body))
			}
		}
	}
}
