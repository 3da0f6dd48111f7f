package http2

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// nodeScript posts twenty bodies at once and checks what comes back.
const nodeScript = `
const http2 = require('http2');
const session = http2.connect('http://' + process.argv[1]);
session.on('error', e => { console.error(e); process.exit(1); });
let left = 20;
for (let i = 0; i < 20; i++) {
  const body = 'x'.repeat(i * 5000);
  const req = session.request({':method': 'POST', ':path': '/node?i=' + i, 'x-field': 'from node'});
  let status, got = '', trailers;
  req.on('response', h => { status = h[':status']; if (h['x-field'] !== 'from node') throw new Error('field ' + h['x-field']); });
  req.on('trailers', h => { trailers = h; });
  req.setEncoding('utf8');
  req.on('data', d => { got += d; });
  req.on('end', () => {
    if (status !== 418 || got !== String(body.length) || !trailers['x-sum']) throw new Error(status + ' ' + got);
    if (--left === 0) { session.close(); console.log('done'); }
  });
  req.end(body);
}
`

// pythonScript does the same with httpx, whose HTTP/2 is Python's h2; 77 says that it is not there.
const pythonScript = `
import asyncio, sys
try:
    import httpx, h2
except ImportError:
    sys.exit(77)
async def one(client, i):
    body = 'x' * (i * 5000)
    r = await client.post(f'http://{sys.argv[1]}/python?i={i}', content=body, headers={'x-field': 'from python'})
    assert (r.http_version, r.status_code, r.text, r.headers['x-field']) == ('HTTP/2', 418, str(len(body)), 'from python'), r
async def main():
    async with httpx.AsyncClient(http1=False, http2=True, trust_env=False) as client:
        await asyncio.gather(*(one(client, i) for i in range(20)))
asyncio.run(main())
print('done')
`

// TestOtherPrograms: clients that share no code with ours.
func TestOtherPrograms(t *testing.T) {
	rig := startRelay(t, &relayRig{}, startBackend(t, http.HandlerFunc(answer)), startBackend(t, http.HandlerFunc(answer)))
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"node", []string{"-e", nodeScript, rig.addr}, "done"},
		{"python3", []string{"-c", pythonScript, rig.addr}, "done"},
		{"curl", []string{
			"-sS", "--http2-prior-knowledge", "-w", "%{http_version} %{http_code}", "-d", strings.Repeat("x", 100_000),
			"http://" + rig.addr + "/curl", // only one: curl 7.88 cannot use such a connection again, whatever the server
		}, "1000002 418"},
		{"h2load", []string{"-n", "2000", "-c", "4", "-m", "16", "http://" + rig.addr + "/"}, "2000 done, 0 succeeded, 2000 failed, 0 errored"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := exec.LookPath(tt.name); err != nil {
				t.Skip(err)
			}
			out, err := exec.CommandContext(t.Context(), tt.name, tt.args...).CombinedOutput()
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 77 {
				t.Skip("httpx is not installed")
			}
			if err != nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}
