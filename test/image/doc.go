// Package image builds the container images that .ko.yaml describes, with ko's
// own library, and looks at what comes out. It is a module of its own, which
// also pins the ko that `make images` runs.
package image
