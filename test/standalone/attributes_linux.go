package main

import "syscall"

// childAttributes: a process group of its own, and SIGKILL should we die without stopping it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
