// Package docs holds the documentation against what it speaks of: links and
// their anchors, flags, metrics, annotations, make targets, tests and files.
// Tables that are made of one package's values are tested in that package.
package docs
