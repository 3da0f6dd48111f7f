//go:build !linux

package relay

import "syscall"

// rawReads: everything goes through package net here, and the functions below are not called.
const rawReads = false

func sysRead(uintptr, []byte) (int, syscall.Errno)  { return 0, syscall.EINVAL }
func sysWrite(uintptr, []byte) (int, syscall.Errno) { return 0, syscall.EINVAL }
func sysPeek(uintptr, []byte) (int, syscall.Errno)  { return 0, syscall.EINVAL }
