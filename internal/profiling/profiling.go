// Package profiling serves Go's runtime profiles on the admin addresses of the programs.
package profiling

import (
	"net/http"
	"net/http/pprof"
)

// Handle adds /debug/pprof/, as package net/http/pprof describes it. Profiles take as long as they
// are asked to, so whoever serves mux must not bound the time of an answer.
func Handle(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
