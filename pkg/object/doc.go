// Package object turns Kubernetes API objects into the stripped values of
// package mesh. Both sources use it: the one that reads files and the one that
// watches a cluster. It is pure, and imports the API types but no client.
package object
