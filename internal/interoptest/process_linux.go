package interoptest

import "syscall"

// childAttributes: SIGKILL for the child should the test die without stopping it.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
