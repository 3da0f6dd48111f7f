package sandbox

import (
	"os"

	"github.com/vishvananda/netns"
)

func nsHandle(file *os.File) netns.NsHandle { return netns.NsHandle(int(file.Fd())) }
