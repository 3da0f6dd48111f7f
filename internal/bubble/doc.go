// Package bubble runs the real control plane inside a synctest bubble, for
// tests in which much time passes: its source is in memory, its two listeners
// are too, and a connection to it can be made to stand still, as one does whose
// other end is gone without a word. An hour in it takes as long as its work does.
//
// Everything here is made inside the bubble, and used from the test's goroutine
// unless it says otherwise.
package bubble
