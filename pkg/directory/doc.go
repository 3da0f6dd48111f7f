// Package directory watches a directory of YAML and JSON files, and says what
// they hold: keys and values, as a parser that is given to it finds them in the
// text. It serves package manifest (Kubernetes objects) and package static (xDS
// resources), and knows neither.
//
// # What is read
//
// The files *.yaml, *.yml and *.json that stand directly in the directory, and
// whatever a symlink of such a name leads to. Directories below it are not
// entered, and names that begin with a dot are ignored: that is how a mounted
// ConfigMap works, whose visible entries lead through the symlink "..data".
//
// # What is wrong
//
// Everything that is wrong is a Problem in Status:
//
//   - A file that cannot be read, is larger than Config.MaxFileBytes, or of
//     which the parser has a fatal finding is invalid. What it gave before stays
//     in force, as a whole, until it is valid again or deleted. A file that has
//     not been valid since the start gives its good items.
//   - A key that stands in two files is taken from the first one by name, and
//     within one file from the first place.
//
// # When a change shows
//
// A change is read as soon as the directory has been quiet for 25 ms (but at
// most 100 ms after its first event). A change that looks like the middle of a
// save, because a file became invalid, its last line has no end, or items
// went missing, must stand unchanged for 150 ms before it counts, and
// for a second where the file gives nothing at all any more. A listing every second finds what no
// event told: edits behind a symlink, a file system without events, another
// directory of the same name. Every 30 s all files are read, whatever their size
// and time say. While the directory cannot be listed, everything stays.
//
// # Concurrency
//
// All state belongs to the goroutine in Run, which also calls Parse, Deliver
// and Synced. Status is an immutable value behind an atomic pointer; Do is a
// message to Run.
package directory
