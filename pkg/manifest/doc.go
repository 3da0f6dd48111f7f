// Package manifest is a mesh.Source over a directory of Kubernetes YAML and
// JSON: what a cluster's API is to package kube, the directory is here.
//
// # What is read
//
// The files *.yaml, *.yml and *.json that stand directly in the directory, and
// whatever a symlink of such a name leads to. Directories below it are not
// entered, and names that begin with a dot are ignored: that is how a mounted
// ConfigMap works, whose visible entries lead through the symlink "..data".
//
// A file holds any number of documents; a document is a Service, Pod, Node or
// Namespace (v1), an EndpointSlice (discovery.k8s.io/v1), or a List of them.
// Documents of other kinds are legal and ignored, so that a directory may hold
// a whole application. A namespaced object without a namespace is in
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
//   - A file that cannot be read, is larger than Config.MaxFileBytes, or has a
//     document that cannot be decoded is invalid. What it gave before stays in
//     force, as a whole, until it is valid again or deleted. A file that has
//     not been valid since the start gives its good documents.
//   - An object that stands in two files is taken from the first one by name,
//     and within one file from the first document.
//
// # When a change shows
//
// A change is read as soon as the directory has been quiet for 25 ms (but at
// most 100 ms after its first event). A change that looks like the middle of a
// save, because a file became invalid, its last line has no end, or objects
// went missing, must stand unchanged for 150 ms before it counts. A listing every second finds what no
// event told: edits behind a symlink, a file system without events, another
// directory of the same name. While the directory cannot be listed, all
// objects stay.
//
// # Concurrency
//
// All state belongs to the goroutine in Run. Status is an immutable value
// behind an atomic pointer; Read is a message to Run.
package manifest
