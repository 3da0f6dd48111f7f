//go:build !linux

package interoptest

import "syscall"

// childAttributes: only Linux can tie a child's life to ours.
func childAttributes() *syscall.SysProcAttr { return nil }
