// Package interop tests the control plane with clients that others wrote.
package interop
