// Package manifest is a mesh.Source over a directory of Kubernetes YAML and
// JSON: what a cluster's API is to package kube, the directory is here.
//
// # What is read
//
// Package directory says which files are read, and when a change shows.
//
// A file holds any number of documents; a document is a Service, Pod, Node or
// Namespace (v1), an EndpointSlice (discovery.k8s.io/v1), or a List of them.
// Documents of other kinds are legal and ignored, so that a directory may hold
// a whole application, but not of kinds that v1 and discovery.k8s.io/v1 do not have. A namespaced object without a namespace is in
// "default". UID, resource version and time of change never come from a file.
//
// # What is wrong
//
// Everything that is wrong is a Problem in Status:
//
//   - A field that the kind does not have (a typo such as "adresses") is
//     reported with its file and line; the object stands without it.
//   - A part that does not convert is reported by package object, and the rest
//     of the object stands.
//   - So is a kind that its API group does not have; where it looks like one of those
//     above, mistyped, the file is invalid.
//   - A file that has a document that cannot be decoded is invalid, and what
//     that means package directory says, as of an object that stands twice.
//
// # Concurrency
//
// All state belongs to the goroutine in Run. Status is an immutable value;
// Read is a message to Run.
package manifest
