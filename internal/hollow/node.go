package hollow

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// errand is something that a node has to do for itself.
type errand struct {
	kubelet *kubelet
	what    what
}

type what int

const (
	register what = iota // create its Node, or find it as it was left
	renew                // its lease
	post                 // its status
)

func (n *Nodes) runErrand(ctx context.Context, e errand) (again time.Time, err error) {
	if e.kubelet.isStopped() {
		return time.Time{}, nil
	}
	to, err := n.as(ctx, e.kubelet)
	if err == nil {
		switch e.what {
		case register:
			again, err = n.register(to, e.kubelet)
		case renew:
			err = n.renew(to, e.kubelet)
		case post:
			again, err = n.post(to, e.kubelet)
		}
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		n.options.Log.Warn("a hollow node could not do what was due", "node", e.kubelet.name, "error", err)
	}
	return again, err
}

// register makes a node known to the API.
func (n *Nodes) register(ctx context.Context, k *kubelet) (time.Time, error) {
	made, err := n.api.core.Nodes().Create(ctx, n.object(k, time.Now()), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err): // it was there before
		found, err := n.api.core.Nodes().Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, err
		}
		n.nodeChanged(found)
		n.due.Add(errand{k, post})
	case err != nil:
		return time.Time{}, err
	default:
		n.nodeChanged(made)
		n.due.AddAfter(errand{k, post}, time.Until(n.turn(k, n.options.Status, time.Now())))
	}
	if err := n.renew(ctx, k); err != nil {
		return time.Time{}, err
	}
	if k.firstTime() && n.missing.Add(-1) == 0 {
		close(n.ready)
	}
	return time.Time{}, nil
}

// turn is when a node is to do next what it does in every interval. Nodes take turns, evenly over the interval.
func (n *Nodes) turn(k *kubelet, interval time.Duration, now time.Time) time.Time {
	next := now.Truncate(interval).Add(interval * time.Duration(k.number) / time.Duration(n.options.Count))
	if !next.After(now) {
		next = next.Add(interval)
	}
	return next
}

// nodeChanged notes what others say of a node.
func (n *Nodes) nodeChanged(obj *corev1.Node) {
	k := n.kubelets[obj.Name]
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.uid != obj.UID {
		k.uid, k.lease = obj.UID, ""
	}
	if len(k.cidrs) == 0 {
		for _, cidr := range obj.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(cidr); err == nil {
				k.cidrs = append(k.cidrs, p)
			}
		}
	}
	if !k.stopped && k.lease != "" && !wellKnown(obj) {
		n.due.Add(errand{k, post})
	}
}

// wellKnown says whether the API has a node as ready.
func wellKnown(obj *corev1.Node) bool {
	return slices.ContainsFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeGone has a node that was deleted rest. As with other kubelets, it takes a new start to register it again.
func (n *Nodes) nodeGone(obj *corev1.Node) {
	if k := n.kubelets[obj.Name]; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.uid == obj.UID {
			k.uid, k.lease, k.cidrs = "", "", nil
		}
	}
}

// Leases are renewed in batches, so many in an interval: a machine that is woken for one may as well do some more.
const batches = 40

// worthTwo is how many leases are renewed one after another before it is worth doing it at the same time.
const worthTwo = 32

// renewLeases renews all leases, again and again.
func (n *Nodes) renewLeases(ctx context.Context) {
	pause := n.options.Lease / renewals / batches
	timer := time.NewTimer(pause)
	defer timer.Stop()
	due := time.Now()
	for batch := 0; ; batch = (batch + 1) % batches {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		n.renewBatch(ctx, batch)
		due = due.Add(pause) // however long it took: none is left out
		timer.Reset(time.Until(due.Add(pause)))
	}
}

func (n *Nodes) renewBatch(ctx context.Context, batch int) {
	var mine []*kubelet
	for i := batch; i < len(n.ordered); i += batches {
		mine = append(mine, n.ordered[i])
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(mine, max(worthTwo, len(mine)/n.options.Workers+1)) {
		wg.Go(func() {
			for _, k := range part {
				if k.hasLease() && ctx.Err() == nil {
					if _, err := n.runErrand(ctx, errand{k, renew}); err != nil {
						n.due.AddRateLimited(errand{k, renew})
					}
				}
			}
		})
	}
	wg.Wait()
}

// renew renews a node's lease, or makes it.
func (n *Nodes) renew(ctx context.Context, k *kubelet) error {
	k.mu.Lock()
	uid, version := k.uid, k.lease
	k.mu.Unlock()
	if uid == "" {
		return nil
	}
	now, seconds := metav1.NowMicro(), int32(n.options.Lease/time.Second)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Namespace: corev1.NamespaceNodeLease, ResourceVersion: version,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: k.name, UID: uid}}},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &k.name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
	leases := n.api.coordination.Leases(corev1.NamespaceNodeLease)
	var got *coordinationv1.Lease
	var err error
	if version == "" {
		if got, err = leases.Create(ctx, lease, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			if got, err = leases.Get(ctx, k.name, metav1.GetOptions{}); err == nil {
				lease.ResourceVersion = got.ResourceVersion
				got, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
			}
		}
	} else {
		got, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.lease = ""
		return err
	}
	if k.uid == uid { // or it was deleted meanwhile
		k.lease = got.ResourceVersion
	}
	return nil
}

// post posts a node's status: that it lives, and how it is.
func (n *Nodes) post(ctx context.Context, k *kubelet) (time.Time, error) {
	obj, found, err := n.nodes.GetStore().GetByKey(k.name)
	if err != nil {
		return time.Time{}, err
	}
	if !found {
		return time.Time{}, nil
	}
	now := time.Now()
	seen := *obj.(*corev1.Node) // the status is replaced, nothing of it is changed
	fresh := n.object(k, now)
	kept := fresh.Status.Conditions
	for _, c := range seen.Status.Conditions {
		i := slices.IndexFunc(kept, func(own corev1.NodeCondition) bool { return own.Type == c.Type })
		switch {
		case i < 0:
			kept = append(kept, c) // somebody else's
		case kept[i].Status == c.Status:
			kept[i].LastTransitionTime = c.LastTransitionTime
		}
	}
	seen.ManagedFields = nil
	seen.Status = fresh.Status
	seen.Status.Conditions = kept
	if _, err := n.api.core.Nodes().UpdateStatus(ctx, &seen, metav1.UpdateOptions{}); err != nil {
		return time.Time{}, err
	}
	return n.turn(k, n.options.Status, now), nil
}

// object is a node as it registers.
func (n *Nodes) object(k *kubelet, at time.Time) *corev1.Node {
	now := metav1.NewTime(at)
	ok := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	labels := map[string]string{corev1.LabelHostname: k.name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH}
	if n.options.Labels != nil {
		maps.Copy(labels, n.options.Labels(k.number))
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: labels, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Status: corev1.NodeStatus{
			Capacity: n.options.Capacity, Allocatable: n.options.Capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: k.hostIP()}, {Type: corev1.NodeHostName, Address: k.name}},
			Conditions: []corev1.NodeCondition{
				ok(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
				ok(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
				ok(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
				ok(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: 10250}},
			NodeInfo: corev1.NodeSystemInfo{MachineID: identifier(k.name, "machine", false), SystemUUID: identifier(k.name, "system", true),
				BootID: identifier(k.name, "boot", true), KernelVersion: "6.12.0-hollow", OSImage: "Hollow Linux", ContainerRuntimeVersion: "containerd://2.4.2",
				KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: runtime.GOARCH},
		},
	}
}

// identifier is one that a machine would have, the same at every start.
func identifier(node, of string, dashes bool) string {
	sum := sha256.Sum256([]byte(node + "/" + of))
	if !dashes {
		return fmt.Sprintf("%x", sum[:16])
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
