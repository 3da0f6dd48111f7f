package auditlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

// file is the files of a log. One goroutine owns it.
type file struct {
	// set once
	path     string
	maxBytes int64
	maxFiles int

	f    *os.File // nil while it is closed
	size int64
	// regular: f is a file that can be rotated. A device or a pipe is not ours to rename.
	regular bool
	// seen is when f was last known to be what path names.
	seen time.Time
}

// identityPause is how long a file is written to without a look at what path names.
const identityPause = time.Second

// append writes whole lines. It gives how many were written before the error.
// What is written of a line that fails is taken back.
func (w *file) append(lines [][]byte, now time.Time) (done int, err error) {
	for done < len(lines) {
		if err := w.open(now); err != nil {
			return done, err
		}
		var chunk []byte
		n := 0
		for _, line := range lines[done:] {
			if size := w.size + int64(len(chunk)); w.regular && size > 0 && size+int64(len(line)) > w.maxBytes {
				break
			}
			chunk = append(chunk, line...)
			n++
		}
		if n == 0 {
			if err := w.rotate(); err != nil {
				return done, err
			}
			continue
		}
		if err := w.write(chunk); err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (w *file) write(chunk []byte) error {
	if _, err := w.f.Write(chunk); err != nil {
		_ = w.f.Truncate(w.size) // where this fails too, mend ends the half line
		w.close()
		return err
	}
	w.size += int64(len(chunk))
	return nil
}

// open opens the file, or again if path does not name it any more.
func (w *file) open(now time.Time) error {
	if w.f != nil && now.Sub(w.seen) >= identityPause {
		w.seen = now
		if !w.same() {
			w.close()
		}
	}
	if w.f != nil {
		return nil
	}
	f, err := os.OpenFile(w.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640) //nolint:gosec // a group may read it, as logs are
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	w.f, w.size, w.seen, w.regular = f, info.Size(), now, info.Mode().IsRegular()
	return w.mend()
}

// mend ends a half line that a crash left behind.
func (w *file) mend() error {
	if w.size == 0 {
		return nil
	}
	last := make([]byte, 1)
	if _, err := w.f.ReadAt(last, w.size-1); err != nil {
		w.close()
		return fmt.Errorf("read the end of %s: %w", w.path, err)
	}
	if last[0] == '\n' {
		return nil
	}
	return w.write([]byte{'\n'})
}

func (w *file) same() bool {
	named, err := os.Stat(w.path)
	if err != nil {
		return false
	}
	open, err := w.f.Stat()
	return err == nil && os.SameFile(named, open)
}

// rotate moves the files on by one; the oldest goes.
func (w *file) rotate() error {
	w.close()
	if w.maxFiles == 1 {
		return os.Remove(w.path)
	}
	for i := w.maxFiles - 1; i > 0; i-- {
		from := w.path
		if i > 1 {
			from = w.old(i - 1)
		}
		if err := os.Rename(from, w.old(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotate: %w", err)
		}
	}
	return nil
}

func (w *file) old(i int) string { return w.path + "." + strconv.Itoa(i) }

func (w *file) close() {
	if w.f != nil {
		_ = w.f.Close() // every write has been checked
		w.f = nil
	}
}
