package discovery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/proto"
)

// The state file is one line of text and then a DeltaDiscoveryResponse with
// everything that is in force. The line is "freshmesh-discovery 1 LENGTH SHA256".
const (
	stateName    = "discovery.state"
	stateMagic   = "freshmesh-discovery"
	stateVersion = 1
	// maxStateBytes is far above any real state; it keeps a foreign file from filling the memory.
	maxStateBytes = 512 << 20
)

// stateFile keeps the last good configuration in a directory. Its goroutine does
// the writing, because a disk may take seconds. Its failures harm nothing else.
type stateFile struct {
	dir     string
	log     hclog.Logger
	metrics *metrics
	// next holds the newest state that is not being written yet.
	next chan []*discoveryv3.Resource
	// failed is set by a write that failed, and cleared by whoever plans another.
	failed atomic.Bool
	// warned is owned by the writer once it runs: one Warn until a write succeeds.
	warned bool
}

func newStateFile(dir string, log hclog.Logger, m *metrics) *stateFile {
	return &stateFile{dir: dir, log: log, metrics: m, next: make(chan []*discoveryv3.Resource, 1)}
}

// check makes the directory and tries to write in it. Its error says that no
// state can ever be kept there; what may pass (a full disk) is one Warn.
func (s *stateFile) check() error {
	err := os.MkdirAll(s.dir, 0o700)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(s.dir, stateName+".tmp-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	switch {
	case err == nil:
		return nil
	case !impossible(err):
		s.warned = true
		s.log.Warn("last good configuration cannot be saved now", "dir", s.dir, "err", err)
		return nil
	}
	if path, ok := errors.AsType[*os.PathError](err); ok {
		err = path.Err
	}
	return fmt.Errorf("state directory %s: %w", s.dir, err)
}

// impossible tells whether an error lies in the path itself, so that only a person can mend it.
func impossible(err error) bool {
	return errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// offer hands over a state to be written; it replaces one that still waits. Owner only.
func (s *stateFile) offer(state []*discoveryv3.Resource) {
	select {
	case <-s.next:
	default:
	}
	s.next <- state
}

// run writes until ctx ends; a state that waits then is written still.
func (s *stateFile) run(ctx context.Context) {
	for {
		select {
		case state := <-s.next:
			s.save(state)
		case <-ctx.Done():
			select {
			case state := <-s.next:
				s.save(state)
			default:
			}
			return
		}
	}
}

func (s *stateFile) save(state []*discoveryv3.Resource) {
	err := s.write(state)
	if err == nil {
		s.warned = false
		return
	}
	s.metrics.stateFailures.Inc()
	s.failed.Store(true)
	if !s.warned {
		s.warned = true
		s.log.Warn("last good configuration not saved", "dir", s.dir, "err", err)
	}
}

// write replaces the file in one step (temporary file, fsync, rename, fsync of the directory).
func (s *stateFile) write(state []*discoveryv3.Resource) (err error) {
	data, err := encodeState(state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, stateName+".tmp-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), filepath.Join(s.dir, stateName)); err != nil {
		return err
	}
	d, err := os.Open(s.dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load gives nil when there is no file, or none that can be used: that one is
// set aside as ".corrupt" with one Warn.
func (s *stateFile) load() []*discoveryv3.Resource {
	s.sweep()
	path := filepath.Join(s.dir, stateName)
	state, err := readState(path)
	switch {
	case err == nil:
		return state
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	aside := os.Rename(path, path+".corrupt")
	s.log.Warn("last good configuration is unusable and ignored", "file", path, "err", errors.Join(err, aside))
	return nil
}

// sweep removes what a crash in the middle of a write left behind.
func (s *stateFile) sweep() {
	left, _ := filepath.Glob(filepath.Join(s.dir, stateName+".tmp-*"))
	for _, f := range left {
		_ = os.Remove(f)
	}
}

func readState(path string) ([]*discoveryv3.Resource, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxStateBytes {
		return nil, fmt.Errorf("not a state file: %s of %d bytes", info.Mode(), info.Size())
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return decodeState(data)
}

func encodeState(state []*discoveryv3.Resource) ([]byte, error) {
	body, err := proto.Marshal(&discoveryv3.DeltaDiscoveryResponse{Resources: state})
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("%s %d %d %x\n", stateMagic, stateVersion, len(body), sha256.Sum256(body))
	return append([]byte(head), body...), nil
}

func decodeState(data []byte) ([]*discoveryv3.Resource, error) {
	head, body, ok := bytes.Cut(data, []byte("\n"))
	if !ok || !bytes.HasPrefix(head, []byte(stateMagic+" ")) {
		return nil, errors.New("not a state file")
	}
	want := fmt.Sprintf("%s %d %d %x", stateMagic, stateVersion, len(body), sha256.Sum256(body))
	if string(head) != want {
		return nil, fmt.Errorf("another version, cut off or damaged: %.80q", head)
	}
	var r discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(body, &r); err != nil {
		return nil, err
	}
	return r.GetResources(), nil
}
