//go:build !linux

package main

import "syscall"

// childAttributes: a process group of its own. Only Linux can tie a child's life to ours.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
