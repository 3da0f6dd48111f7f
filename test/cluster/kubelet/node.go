package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// register makes the Node object.
func (k *Kubelet) register(ctx context.Context) error {
	c := k.config
	labels := map[string]string{v1.LabelHostname: c.Name, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64"}
	if c.Zone != "" {
		labels[v1.LabelTopologyZone] = c.Zone
	}
	if c.Region != "" {
		labels[v1.LabelTopologyRegion] = c.Region
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Name, Labels: labels}, Status: k.nodeStatus()}
	if _, err := k.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", c.Name, err)
	}
	return nil
}

func (k *Kubelet) nodeStatus() v1.NodeStatus {
	now := metav1.Now()
	capacity := v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"),
		v1.ResourcePods: resource.MustParse("250"), v1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
	}
	return v1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Addresses: []v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: k.config.Address.String()}, {Type: v1.NodeHostName, Address: k.config.Name},
		},
		Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now},
			{Type: v1.NodeMemoryPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientMemory", LastHeartbeatTime: now, LastTransitionTime: now},
			{Type: v1.NodeDiskPressure, Status: v1.ConditionFalse, Reason: "KubeletHasNoDiskPressure", LastHeartbeatTime: now, LastTransitionTime: now},
			{Type: v1.NodePIDPressure, Status: v1.ConditionFalse, Reason: "KubeletHasSufficientPID", LastHeartbeatTime: now, LastTransitionTime: now},
		},
		NodeInfo: v1.NodeSystemInfo{KubeletVersion: "v1.37.2", OperatingSystem: "linux", Architecture: "amd64"},
	}
}

// beat renews the node's lease, and says that it is ready, until ctx ends.
func (k *Kubelet) beat(ctx context.Context) {
	tick := time.NewTicker(k.config.Beat)
	defer tick.Stop()
	for beats := 0; ; beats++ {
		if !k.dead.Load() {
			if err := k.renew(ctx, beats%3 == 0); err != nil && ctx.Err() == nil {
				k.log.Debug("node lease not renewed", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (k *Kubelet) renew(ctx context.Context, status bool) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	leases := k.client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	seconds, now := int32(40), metav1.NowMicro()
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: k.config.Name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &k.config.Name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	renewal, err := json.Marshal(map[string]any{"spec": lease.Spec})
	if err != nil {
		return err
	}
	_, err = leases.Patch(ctx, k.config.Name, types.MergePatchType, renewal, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	if err != nil || !status {
		return err
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": k.nodeStatus().Conditions}})
	if err != nil {
		return err
	}
	_, err = k.client.CoreV1().Nodes().Patch(ctx, k.config.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// addresses gives out a node's pod addresses in turn, so that one is used anew as late as can be.
type addresses struct {
	node byte

	mu    sync.Mutex // guards what follows
	last  byte
	taken map[netip.Addr]bool
}

// take gives an IPv4 and an IPv6 address, 10.244.NODE.N and fd00:10:244:NODE::N.
func (a *addresses) take() (v4, v6 netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.taken == nil {
		a.taken = make(map[netip.Addr]bool)
	}
	for range 253 {
		a.last = a.last%253 + 1
		v4 = netip.AddrFrom4([4]byte{10, 244, a.node, a.last + 1})
		if !a.taken[v4] {
			a.taken[v4] = true
			return v4, netip.AddrFrom16([16]byte{0xfd, 0, 0, 0x10, 0x02, 0x44, 0, a.node, 15: a.last + 1})
		}
	}
	panic("more than 253 pods on a node that takes 250")
}

func (a *addresses) free(v4 netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.taken, v4)
}
