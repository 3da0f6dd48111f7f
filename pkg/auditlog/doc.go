// Package auditlog writes events as lines of JSON to a file that is rotated:
// FILE is the newest, FILE.1 the one before, and so on. Together they take at
// most MaxFiles times MaxBytes.
//
// Whoever records never waits: the queue is bounded, and what does not fit is
// counted and said in the log itself. One goroutine, Run, makes the text and writes:
//
//	Record ──queue──► Run ──► FILE, FILE.1, …
//	   │ full                  │ failed: warned of once, tried again every second
//	   └────────── counted ◄───┘         what came meanwhile is lost
//
// A write that fails leaves no half line behind. A file that somebody else has
// moved away or removed is made anew within a second of writing.
package auditlog
