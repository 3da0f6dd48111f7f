// Package mesh holds the leaf values that the rest of freshmesh speaks in:
// Kubernetes objects stripped to what the mesh uses, xDS resources as opaque
// bytes, views of them, and the interface of a source of Kubernetes objects.
//
// It imports nothing of ours. Every value is immutable once it has been handed
// on: whoever wants another one makes another one. All of it is safe to share
// between goroutines.
package mesh
