package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the sandbox itself. Pods reach it by their default route, so what
// listens on all addresses in there is the cluster's infrastructure: the API
// server behind APIService, and DNS behind DNSService.
var (
	PodRange4  = netip.MustParsePrefix("10.244.0.0/16")
	PodRange6  = netip.MustParsePrefix("fd00:10:244::/56")
	Gateway4   = netip.MustParseAddr("10.244.0.1")
	Gateway6   = netip.MustParseAddr("fd00:10:244::1")
	APIService = netip.MustParseAddr("10.96.0.1")
	DNSService = netip.MustParseAddr("10.96.0.10")
)

// Network is a bridge that all pods are on.
type Network struct {
	bridge *netlink.Bridge
}

// NewNetwork makes the bridge and gives the sandbox its addresses.
func NewNetwork() (*Network, error) {
	snooping := false // it forgets neighbours that are silent
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "pods"}, MulticastSnooping: &snooping}
	if err := netlink.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("%w: bridge: %w", ErrUnavailable, err)
	}
	for _, at := range []netip.Prefix{
		netip.PrefixFrom(Gateway4, PodRange4.Bits()), netip.PrefixFrom(Gateway6, PodRange6.Bits()),
		netip.PrefixFrom(APIService, 32), netip.PrefixFrom(DNSService, 32),
	} {
		if err := addAddress(netlink.AddrAdd, bridge, at); err != nil {
			return nil, err
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return nil, fmt.Errorf("bridge up: %w", err)
	}
	return &Network{bridge: bridge}, nil
}

// Alias gives the sandbox one more address, such as a node's.
func (n *Network) Alias(a netip.Addr) error {
	return addAddress(netlink.AddrAdd, n.bridge, netip.PrefixFrom(a, a.BitLen()))
}

// Local makes the sandbox itself have every address of a range.
func (n *Network) Local(p netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	to := &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	if err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Dst: to, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Table: unix.RT_TABLE_LOCAL,
	}); err != nil {
		return fmt.Errorf("local range %s: %w", p, err)
	}
	return nil
}

// Pod is the network of one pod: a namespace with a loopback of its own, and one
// interface on the bridge.
type Pod struct {
	// Namespace is the open network namespace.
	Namespace *os.File
	outer     netlink.Link
}

// Add makes the network of a pod. name is unique, and at most 15 bytes. The
// hardware address follows from the IPv4 address, so that one that is used anew
// needs no new neighbour entries anywhere.
func (n *Network) Add(name string, v4, v6 netip.Addr) (*Pod, error) {
	file, err := newNamespace()
	if err != nil {
		return nil, err
	}
	b := v4.As4()
	veth := &netlink.Veth{
		LinkAttrs:        netlink.LinkAttrs{Name: name, MasterIndex: n.bridge.Index},
		PeerName:         "eth0",
		PeerNamespace:    netlink.NsFd(int(file.Fd())),
		PeerHardwareAddr: net.HardwareAddr{2, 0, b[0], b[1], b[2], b[3]},
	}
	p := &Pod{Namespace: file, outer: veth}
	if err := errors.Join(netlink.LinkAdd(veth), netlink.LinkSetUp(veth), p.configure(v4, v6)); err != nil {
		return nil, errors.Join(fmt.Errorf("network of pod %s: %w", name, err), file.Close())
	}
	return p, nil
}

// configure sets up the inside of the namespace.
func (p *Pod) configure(v4, v6 netip.Addr) error {
	return p.within(func(h *netlink.Handle) error {
		for _, name := range []string{"lo", "eth0"} {
			link, err := h.LinkByName(name)
			if err != nil {
				return err
			}
			if name == "eth0" {
				if err := errors.Join(
					addAddress(h.AddrAdd, link, netip.PrefixFrom(v4, PodRange4.Bits())),
					addAddress(h.AddrAdd, link, netip.PrefixFrom(v6, PodRange6.Bits())),
				); err != nil {
					return err
				}
			}
			if err := h.LinkSetUp(link); err != nil {
				return err
			}
		}
		return errors.Join(
			h.RouteAdd(&netlink.Route{Gw: Gateway4.AsSlice()}),
			h.RouteAdd(&netlink.Route{Gw: Gateway6.AsSlice()}),
		)
	})
}

func (p *Pod) within(do func(*netlink.Handle) error) error {
	h, err := netlink.NewHandleAt(nsHandle(p.Namespace))
	if err != nil {
		return err
	}
	defer h.Close()
	return do(h)
}

// Cut takes the pod off the network, or puts it back: what it sends is lost, and so is what others send to it.
func (p *Pod) Cut(cut bool) error {
	if cut {
		return netlink.LinkSetDown(p.outer)
	}
	return netlink.LinkSetUp(p.outer)
}

// Close ends the network; the processes in it must have ended.
func (p *Pod) Close() error {
	return errors.Join(netlink.LinkDel(p.outer), p.Namespace.Close())
}

func addAddress(add func(netlink.Link, *netlink.Addr) error, link netlink.Link, at netip.Prefix) error {
	a := &netlink.Addr{IPNet: &net.IPNet{IP: at.Addr().AsSlice(), Mask: net.CIDRMask(at.Bits(), at.Addr().BitLen())}}
	if at.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	if err := add(link, a); err != nil {
		return fmt.Errorf("address %s: %w", at, err)
	}
	return nil
}

// newNamespace makes a network namespace that lives as long as the file is open.
//
// The thread goes back to where it was: were it to end instead, every child that it
// has started with a parent death signal would get that (PR_SET_PDEATHSIG(2const)).
func newNamespace() (*os.File, error) {
	runtime.LockOSThread()
	own := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
	if _, err := os.Stat(own); err != nil {
		own = "/proc/thread-self/ns/net"
	}
	before, err := os.Open(own)
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer func() { _ = before.Close() }()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return nil, fmt.Errorf("%w: network namespace: %w", ErrUnavailable, err)
	}
	file, err := os.Open(own)
	if back := unix.Setns(int(before.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(back) // a namespace of our own, which is open: we may enter it
	}
	runtime.UnlockOSThread()
	return file, err
}
