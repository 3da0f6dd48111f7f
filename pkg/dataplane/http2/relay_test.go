package http2

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// answer says what a backend got.
func answer(w http.ResponseWriter, r *http.Request) {
	sum := sha256.New()
	n, err := io.Copy(sum, r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set("X-Path", r.URL.String())
	w.Header().Set("X-Host", r.Host)
	w.Header().Set("X-Field", r.Header.Get("X-Field"))
	w.WriteHeader(http.StatusTeapot)
	fmt.Fprintf(w, "%d", n)
	w.Header().Set("X-Sum", fmt.Sprintf("%x", sum.Sum(nil)))
}

func TestGoClientAndServer(t *testing.T) {
	backend := startBackend(t, http.HandlerFunc(answer))
	rig := startRelay(t, &relayRig{}, backend)
	client := goClient(t)
	for _, size := range []int{0, 1, 100, 16 << 10, 1 << 20, 5 << 20} {
		body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+rig.addr+"/a/b?c=d", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "some.service:80"
		req.Header.Set("X-Field", "value")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%x", sha256.Sum256(body))
		if resp.StatusCode != http.StatusTeapot || string(text) != fmt.Sprint(size) || resp.Trailer.Get("X-Sum") != want ||
			resp.Header.Get("X-Path") != "/a/b?c=d" || resp.Header.Get("X-Host") != "some.service:80" || resp.Header.Get("X-Field") != "value" {
			t.Fatalf("%d bytes: %v %q trailer %v", size, resp, text, resp.Trailer)
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	var backends []string
	for range 3 {
		backends = append(backends, startBackend(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})))
	}
	rig := startRelay(t, &relayRig{}, backends...)
	var wg sync.WaitGroup
	for range 4 {
		client := goClient(t)
		for i := range 16 {
			wg.Go(func() {
				for j := range 20 {
					want := strings.Repeat(fmt.Sprintf("%d-%d,", i, j), 1+(i*j*37)%20000)
					resp, err := client.Post("http://"+rig.addr+"/", "text/plain", strings.NewReader(want))
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if err != nil || string(got) != want {
						t.Errorf("%d-%d: %d bytes of %d, %v", i, j, len(got), len(want), err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
}
