// Package age lets a mesh grow old: the real control plane and the real data
// plane's discovery and endpoints in one synctest bubble, with many names, an
// endpoint change every few seconds, and connections that break. At the end
// every state must be right, and on the way the memory of both must not grow.
//
// go test lives one hour; `make soak` thirty days.
package age
