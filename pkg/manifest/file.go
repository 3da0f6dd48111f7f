package manifest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/freshmesh/freshmesh/pkg/mesh"
	"github.com/freshmesh/freshmesh/pkg/object"
)

// racyWindow is how long after a write another one may leave no trace in the
// file's time and size, since file systems stamp times in ticks.
const racyWindow = 100 * time.Millisecond

// file is what is known of one file of the directory. Owned by Run.
type file struct {
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
	inForce version
	// held is a newer version that may be the middle of a save; nil for none.
	held *version
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
type version struct {
	valid bool
	// unread is true where there was no content to decode.
	unread bool
	// cut is true for YAML whose last line has no end: "10.0.0.1" may be on
	// its way to "10.0.0.12".
	cut bool
	// objects stand in the order of the file, with lines at the same index.
	objects []mesh.Object
	lines   []int
	// problems are those of the file, objectProblems those of its objects.
	problems, objectProblems []mesh.Problem
}

// apply puts the held version in force, as far as its validity allows.
func (f *file) apply() {
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

// fileObject is how a Problem names a file.
func fileObject(name string) string { return "file " + name }

// invalid is the version of a file that cannot be read.
func invalid(name string, err error) version {
	return version{unread: true, problems: []mesh.Problem{{Object: fileObject(name), Reason: oneLine(err)}}}
}

// read gives the content's version, unless the content is the one last read;
// then changed is false.
func (f *file) read(dir string, maxBytes int64, now time.Time) (v version, changed bool) {
	path := filepath.Join(dir, f.name)
	info, err := os.Stat(path)
	if err == nil && stampOf(info) == f.stamp && !f.dirty {
		return version{}, false
	}
	var data []byte
	if err == nil {
		f.stamp = stampOf(info)
		data, err = readRegular(path, maxBytes)
	}
	f.dirty = err == nil && now.Sub(f.stamp.modified) < racyWindow
	if err != nil {
		f.stamp = stamp{}
		reason := shorten(err)
		return invalid(f.name, reason), f.differs(xxhash.Sum64String("error: " + reason.Error()))
	}
	if !f.differs(xxhash.Sum64(data)) {
		return version{}, false
	}
	return parse(f.name, data), true
}

// differs notes the content's sum, and tells whether it is another one than before.
func (f *file) differs(sum uint64) bool {
	same := f.seen && sum == f.sum
	f.seen, f.sum = true, sum
	return !same
}

// parse decodes and converts one file's content.
func parse(name string, data []byte) version {
	objects, findings := decode(name, data)
	v := version{valid: true, cut: filepath.Ext(name) != ".json" && len(data) > 0 && data[len(data)-1] != '\n'}
	for _, f := range findings {
		v.valid = v.valid && !f.fatal
		v.problems = append(v.problems, mesh.Problem{Object: fileObject(name), Field: lineField(f.line), Reason: f.reason})
	}
	for _, d := range objects {
		o, problems, err := object.Convert(d.object)
		if err != nil {
			v.valid = false
			v.problems = append(v.problems, mesh.Problem{Object: fileObject(name), Field: lineField(d.line), Reason: oneLine(err)})
			continue
		}
		m := o.Metadata()
		m.Origin = name
		m.ChangedAt = time.Time{}
		v.objects = append(v.objects, o)
		v.lines = append(v.lines, d.line)
		v.objectProblems = append(v.objectProblems, problems...)
	}
	return v
}

func lineField(line int) string { return "line " + strconv.Itoa(line) }

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

// isManifest tells whether a directory entry's name is one that is read.
func isManifest(name string) bool {
	if strings.HasPrefix(name, ".") {
		return false
	}
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
