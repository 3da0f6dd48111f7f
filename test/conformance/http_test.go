package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/freshmesh/freshmesh/internal/interoptest"
	"github.com/freshmesh/freshmesh/internal/meshtest"
)

// TestClients: each client speaks HTTP/1.1 and HTTP/2 to services that do the same.
func TestClients(t *testing.T) {
	one, two := goServer(t), goServer(t)
	services := map[string]meshtest.Service{
		"one": {AppProtocol: "http", Addresses: []string{one, two}},
		"two": {AppProtocol: "kubernetes.io/h2c", Addresses: []string{one, two}},
	}
	d := mesh(t, services)
	for service, speaks := range map[string]string{"one": "HTTP1", "two": "HTTP2"} {
		address := d.Listens[interoptest.ClusterName(service)]
		t.Run("to "+speaks, func(t *testing.T) {
			t.Run("curl", func(t *testing.T) { curl(t, address) })
			t.Run("h2load", func(t *testing.T) { h2load(t, address) })
			for name, file := range map[string]string{"node http": "client_http.js", "node http2": "client_http2.js"} {
				t.Run(name, func(t *testing.T) { run(t, exec.Command(interoptest.Node.Need(t), script(file), address)) })
			}
			t.Run("python http.client", func(t *testing.T) {
				run(t, exec.Command(interoptest.Python.Need(t), script("client_http.py"), address))
			})
			for name, args := range map[string][]string{
				"python requests": {"client_requests.py", address},
				"python httpx":    {"client_httpx.py", address, "HTTP/1.1"}, "python httpx, HTTP/2": {"client_httpx.py", address, "HTTP/2"},
			} {
				t.Run(name, func(t *testing.T) {
					cmd := exec.Command(interoptest.Python.Need(t), append([]string{script(args[0])}, args[1:]...)...)
					cmd.Env = append(os.Environ(), "PYTHONPATH="+interoptest.PythonTool.Need(t))
					run(t, cmd)
				})
			}
			for _, http2 := range []bool{false, true} {
				t.Run(fmt.Sprintf("Go, HTTP/2 %v", http2), func(t *testing.T) { goClient(t, address, http2) })
			}
		})
	}
	wantNoFailure(t, d)
}

// goClient posts bodies of many sizes at once, and wants them back with their trailer.
func goClient(t *testing.T, address string, http2 bool) {
	t.Helper()
	var p http.Protocols
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	transport := &http.Transport{Protocols: &p, DisableCompression: true}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), runTime)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			body := bytes.Repeat([]byte("0123456789"), i*i*100)
			var reader io.Reader = bytes.NewReader(body)
			if i%2 == 0 {
				reader = io.MultiReader(reader) // of a length that is not known
			}
			if err := post(ctx, transport, address, reader, body); err != nil {
				t.Errorf("%d bytes: %v", len(body), err)
			}
		})
	}
	wg.Wait()
}

func post(ctx context.Context, rt http.RoundTripper, address string, reader io.Reader, body []byte) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/echo", reader)
	if err != nil {
		return err
	}
	q.Header.Set("X-Field", "of Go")
	resp, err := rt.RoundTrip(q)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !bytes.Equal(got, body) || resp.Header.Get("X-Field") != "of Go" ||
		resp.Trailer.Get("X-Length") != strconv.Itoa(len(body)) {
		return fmt.Errorf("%s, %d bytes %.200q, field %q, trailer %v", resp.Status, len(got), got, resp.Header.Get("X-Field"), resp.Trailer)
	}
	return nil
}

func curl(t *testing.T, address string) {
	t.Helper()
	path := interoptest.Curl.Need(t)
	content := bytes.Repeat([]byte("0123456789"), 500_000)
	big := interoptest.WriteFile(t, "big", content)
	url := "http://" + address + "/echo"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"get":                {[]string{url}, "Hello!200"},
		"head":               {[]string{"-I", "-o", filepath.Join(t.TempDir(), "head"), url}, "200"},
		"post":               {[]string{"-d", "hello", url}, "hello200"},
		"post twice":         {[]string{"-d", "hello", url, url}, "hello200hello200"},
		"http1.0":            {[]string{"-0", "-d", "hello", url}, "hello200"},
		"chunked":            {[]string{"-H", "Transfer-Encoding: chunked", "-d", "hello", url}, "hello200"},
		"large":              {[]string{"--data-binary", "@" + big, url}, string(content) + "200"},
		"large, expect":      {[]string{"-H", "Expect: 100-continue", "--data-binary", "@" + big, url}, string(content) + "200"},
		"large, chunked":     {[]string{"-T", big, "-X", "POST", "-H", "Transfer-Encoding: chunked", url}, string(content) + "200"},
		"as through a proxy": {[]string{"-x", "http://" + address, "-d", "hello", "http://a.example/"}, "hello200"},
		"http2":              {[]string{"--http2-prior-knowledge", "-d", "hello", url}, "hello200"},
		"http2, large":       {[]string{"--http2-prior-knowledge", "--data-binary", "@" + big, url}, string(content) + "200"},
		// Its offer to upgrade is passed over; %{http_version} shows that.
		"upgrade to http2":       {[]string{"--http2", "-w", "%{http_code} %{http_version}", url}, "Hello!200 1.1"},
		"upgrade to http2, post": {[]string{"--http2", "-d", "hello", "-w", "%{http_code} %{http_version}", url}, "hello200 1.1"},
		"prior knowledge":        {[]string{"--http2-prior-knowledge", "-w", "%{http_code} %{http_version}", url}, "Hello!200 2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := run(t, exec.Command(path, append([]string{"-sS", "--max-time", "60", "-w", "%{http_code}"}, c.args...)...))
			if got != c.want {
				t.Errorf("got %d bytes %.80q, want %d", len(got), got, len(c.want))
			}
		})
	}
}

func h2load(t *testing.T, address string) {
	t.Helper()
	path := interoptest.H2Load.Need(t)
	body := interoptest.WriteFile(t, "body", bytes.Repeat([]byte("z"), 20_000))
	for name, args := range map[string][]string{
		"get":         {"http://" + address + "/echo"},
		"large":       {"http://" + address + "/bytes?n=100000"},
		"post":        {"-d", body, "http://" + address + "/echo"},
		"http1":       {"--h1", "http://" + address + "/echo"},
		"http1, post": {"--h1", "-d", body, "http://" + address + "/echo"},
	} {
		t.Run(name, func(t *testing.T) {
			out := run(t, exec.Command(path, append([]string{"-n", "2000", "-c", "4", "-m", "16"}, args...)...))
			if !strings.Contains(out, "2000 done, 2000 succeeded, 0 failed, 0 errored") || !strings.Contains(out, "status codes: 2000 2xx") {
				t.Error(out)
			}
		})
	}
}

// TestServers: Go's clients reach the servers of others.
func TestServers(t *testing.T) {
	node, python := interoptest.Node.Need(t), interoptest.Python.Need(t)
	h2 := exec.Command(python, script("server_h2.py"))
	h2.Env = append(os.Environ(), "PYTHONPATH="+interoptest.PythonTool.Need(t))
	echoes := map[string]meshtest.Service{
		"node-http":   {AppProtocol: "http", Addresses: []string{program(t, exec.Command(node, script("server_http.js")))}},
		"node-http2":  {AppProtocol: "kubernetes.io/h2c", Addresses: []string{program(t, exec.Command(node, script("server_http2.js")))}},
		"python-http": {AppProtocol: "http", Addresses: []string{program(t, exec.Command(python, script("server_http.py"), "HTTP/1.1"))}},
		"python-h2":   {AppProtocol: "kubernetes.io/h2c", Addresses: []string{program(t, h2)}},
	}
	services := maps.Clone(echoes)
	services["python-old"] = meshtest.Service{AppProtocol: "http", Addresses: []string{program(t, exec.Command(python, script("server_http.py"), "HTTP/1.0"))}}
	d := mesh(t, services)
	for name := range echoes {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				goClient(t, d.Listens[interoptest.ClusterName(name)], http2)
			})
		}
	}
	for name, paths := range map[string][]string{"python-http": {"/length", "/chunked", "/end"}, "python-old": {"/length", "/end"}} {
		t.Run("bodies of "+name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{}, Timeout: runTime}
			defer client.CloseIdleConnections()
			for _, path := range append(paths, paths...) { // twice: what is kept of the first is used again
				getBody(t, client, "http://"+d.Listens[interoptest.ClusterName(name)]+path)
			}
		})
	}
	wantNoFailure(t, d)
}

// getBody wants what server_http.py sends.
func getBody(t *testing.T, client *http.Client, url string) {
	t.Helper()
	resp, err := client.Get(url)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || string(got) != strings.Repeat("y", 100_000) {
		t.Errorf("%s: %s, %d bytes, %v", url, resp.Status, len(got), err)
	}
}
