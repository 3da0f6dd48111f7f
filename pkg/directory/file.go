package directory

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// racyWindow is how long after a write another one may leave no trace in the
// file's time and size, since file systems stamp times in ticks.
const racyWindow = 100 * time.Millisecond

// file is what is known of one file of the directory. Owned by Run.
type file[K Key, V any] struct {
	name string
	// stamp and sum are those of the content last read, once seen; the stamp
	// is zero after a failure, which leaves none that a cure would change.
	stamp stamp
	sum   uint64
	seen  bool
	// dirty asks for a reading whatever the stamp says.
	dirty bool
	// touched is when the file was last seen to change, gone when it was first
	// missed since it was last listed.
	touched, gone time.Time
	// inForce is the version that counts.
	inForce version[K, V]
	// held is a newer version that may be the middle of a save; nil for none.
	held *version[K, V]
	// everValid tells whether inForce comes from a valid version.
	everValid bool
}

// stamp tells contents apart without reading them.
type stamp struct {
	size       int64
	modified   time.Time
	dev, inode uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{size: info.Size(), modified: info.ModTime()}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.dev, s.inode = uint64(sys.Dev), sys.Ino
	}
	return s
}

// version is what one content of a file gives. It is never changed.
type version[K Key, V any] struct {
	valid bool
	// unread is true where there was no content to decode.
	unread bool
	// cut is true for YAML whose last line has no end: "10.0.0.1" may be on
	// its way to "10.0.0.12".
	cut   bool
	items []Item[K, V]
	// problems are those of the file, itemProblems those of its items.
	problems, itemProblems []mesh.Problem
}

// apply puts the held version in force, as far as its validity allows.
func (f *file[K, V]) apply() {
	v := *f.held
	f.held = nil
	switch {
	case v.valid:
		f.inForce, f.everValid = v, true
	case f.everValid || v.unread:
		f.inForce.problems = v.problems
	default:
		f.inForce = v
	}
}

// invalid is the version of a file that cannot be read.
func invalid[K Key, V any](name string, err error) version[K, V] {
	return version[K, V]{unread: true, problems: []mesh.Problem{{Object: FileObject(name), Reason: OneLine(err)}}}
}

// read gives the content's version, unless the content is the one last read;
// then changed is false.
func (f *file[K, V]) read(c *Config[K, V], now time.Time) (v version[K, V], changed bool) {
	path := filepath.Join(c.Dir, f.name)
	info, err := os.Stat(path)
	if err == nil && stampOf(info) == f.stamp && !f.dirty {
		return version[K, V]{}, false
	}
	var data []byte
	if err == nil {
		f.stamp = stampOf(info)
		data, err = readRegular(path, c.MaxFileBytes)
	}
	f.dirty = err == nil && now.Sub(f.stamp.modified) < racyWindow
	if err != nil {
		f.stamp = stamp{}
		reason := shorten(err)
		return invalid[K, V](f.name, reason), f.differs(xxhash.Sum64String("error: " + reason.Error()))
	}
	if !f.differs(xxhash.Sum64(data)) {
		return version[K, V]{}, false
	}
	return parse(c, f.name, data), true
}

// differs notes the content's sum, and tells whether it is another one than before.
func (f *file[K, V]) differs(sum uint64) bool {
	same := f.seen && sum == f.sum
	f.seen, f.sum = true, sum
	return !same
}

// parse makes a version of one file's content.
func parse[K Key, V any](c *Config[K, V], name string, data []byte) version[K, V] {
	content := c.Parse(name, data)
	v := version[K, V]{
		valid: true, cut: filepath.Ext(name) != ".json" && len(data) > 0 && data[len(data)-1] != '\n',
		items: content.Items, itemProblems: content.Problems,
	}
	for _, f := range content.Findings {
		v.valid = v.valid && !f.Fatal
		v.problems = append(v.problems, mesh.Problem{Object: FileObject(name), Field: LineField(f.Line), Reason: f.Reason})
	}
	for i := range v.items {
		v.items[i].File = name
	}
	return v
}

// readRegular reads a regular file of at most maxBytes. It does not hang on a
// pipe that took the file's place.
func readRegular(path string, maxBytes int64) (data []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err = io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > maxBytes {
		return nil, fmt.Errorf("larger than %d bytes", maxBytes)
	}
	return data, nil
}

// shorten leaves the operation and the path out of a file system's error: the
// Problem names the file already.
func shorten(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// isOurs tells whether a directory entry's name is one that is read.
func isOurs(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
