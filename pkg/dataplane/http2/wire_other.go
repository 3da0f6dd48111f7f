//go:build !unix

package http2

import "syscall"

// nonblocking is false: each write has a goroutine.
const nonblocking = false

func sysRead(uintptr, []byte) (int, error)  { return 0, syscall.EINVAL }
func sysWrite(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
