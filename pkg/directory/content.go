package directory

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// maxFindings bounds what is told of one file.
const maxFindings = 50

// Key names a value among all files of a directory; its text names it in a Problem.
type Key interface {
	comparable
	fmt.Stringer
}

// Content is what a parser finds in one file.
type Content[K Key, V any] struct {
	// Items stand in the order of the file.
	Items []Item[K, V]
	// Findings are about the file, Problems about its items.
	Findings []Finding
	Problems []mesh.Problem
}

// Item is one value and where it stands.
type Item[K Key, V any] struct {
	Key   K
	Value V
	// Line is the file's line, from 1.
	Line int
	// File is its name, relative to the directory; filled in here.
	File string
}

// Finding is something wrong in a file. Fatal means that a part of it could not
// be decoded, and so the file is invalid.
type Finding struct {
	Line   int
	Reason string
	Fatal  bool
}

// Findings collects what is wrong in one file. The zero value is empty.
type Findings struct {
	// All has at most 50 entries; the last one then counts the rest.
	All  []Finding
	more int
}

// Fatal adds a finding that makes the file invalid.
func (f *Findings) Fatal(line int, format string, args ...any) {
	f.add(Finding{Line: line, Reason: fmt.Sprintf(format, args...), Fatal: true})
}

// Warn adds a finding beside which the file stands.
func (f *Findings) Warn(line int, format string, args ...any) {
	f.add(Finding{Line: line, Reason: fmt.Sprintf(format, args...)})
}

// add keeps a finding; of those beyond the bound, only their number and whether one was fatal.
func (f *Findings) add(one Finding) {
	if len(f.All) < maxFindings {
		f.All = append(f.All, one)
		return
	}
	f.more++
	last := &f.All[maxFindings-1]
	*last = Finding{Line: last.Line, Reason: fmt.Sprintf("and %d more", f.more+1), Fatal: last.Fatal || one.Fatal}
}

// FileObject is how a Problem names a file.
func FileObject(name string) string { return "file " + name }

// LineField is how a Problem names a line.
func LineField(line int) string { return "line " + strconv.Itoa(line) }

// OneLine is the error's text without line breaks, cut at 300 bytes.
func OneLine(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "…"
	}
	return s
}
