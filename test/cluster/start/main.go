// Command start starts a cluster for a developer, prints where its kubeconfig is,
// and ends it at Ctrl-C. With arguments it runs them as a command inside the
// cluster's network instead, where pods and services can be reached, and ends
// with that.
//
//	go run ./start                 from test/cluster; or make cluster
//	go run ./start sh              a shell beside the nodes
//
// The cluster has a network of its own. So that kubectl reaches it from outside,
// a port of the host is relayed through a socket in the cluster's directory.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/freshmesh/freshmesh/test/cluster/rig"
	"github.com/freshmesh/freshmesh/test/cluster/sandbox"
)

// What the process outside tells the one inside.
const (
	dirVariable    = "FRESHMESH_CLUSTER_DIR"
	serverVariable = "FRESHMESH_CLUSTER_SERVER"
)

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		code = 1
	}
	os.Exit(code)
}

func run(command []string) (int, error) {
	if !sandbox.Inside() {
		if err := outside(); err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(os.Getenv(dirVariable)) }() // in the system's temporary directory
	}
	code, done, err := rig.Enter(nil)
	if done || err != nil {
		return code, err
	}
	return 0, inside(command)
}

// outside opens the port of the host, and relays it.
func outside() error {
	dir, err := os.MkdirTemp("", "freshmesh-cluster-")
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // containers that are not root pass through it
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := os.Setenv(dirVariable, dir); err != nil {
		return err
	}
	go relay(listener, "unix", filepath.Join(dir, "api.sock")) // as long as the process
	return os.Setenv(serverVariable, "https://"+listener.Addr().String())
}

func inside(command []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir := os.Getenv(dirVariable)
	fmt.Println("starting a cluster in", dir)
	r, err := rig.Start(ctx, rig.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer r.Close()
	listener, err := net.Listen("unix", filepath.Join(dir, "api.sock"))
	if err != nil {
		return err
	}
	go relay(listener, "tcp", "127.0.0.1:443") // as long as the process
	file, err := clientcmd.LoadFromFile(r.Kubeconfig)
	if err != nil {
		return err
	}
	if len(command) > 0 {
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Kubeconfig)
		return cmd.Run()
	}
	for _, c := range file.Clusters {
		c.Server = os.Getenv(serverVariable)
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*file, kubeconfig); err != nil {
		return err
	}
	fmt.Printf("ready; Ctrl-C ends it\n\nexport KUBECONFIG=%s\n\nimages: xds-server, dataplane, app, tools; logs: %s/pods/UID/CONTAINER.log\n", kubeconfig, dir)
	<-ctx.Done()
	return nil
}

// relay connects whoever comes to an address.
func relay(listener net.Listener, network, address string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = from.Close() }()
			to, err := net.Dial(network, address)
			if err != nil {
				return
			}
			defer func() { _ = to.Close() }()
			go copyHalf(to, from)
			copyHalf(from, to)
		}()
	}
}
