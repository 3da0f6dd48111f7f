//go:build unix

package http2

import "syscall"

// nonblocking tells whether sockets can be read and written without waiting.
const nonblocking = true

func sysRead(fd uintptr, p []byte) (int, error)  { return syscall.Read(int(fd), p) }
func sysWrite(fd uintptr, p []byte) (int, error) { return syscall.Write(int(fd), p) }
