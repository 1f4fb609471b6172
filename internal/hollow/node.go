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

	"skiff/internal/localvolume"
)

// nodeTask is something that a node has to do for itself.
type nodeTask struct {
	kubelet *kubelet
	kind    taskKind
}

type taskKind int

const (
	register taskKind = iota // create its Node, or find it as it was left
	renew                    // renew its lease
	post                     // post its status
)

// String returns what the task does, for log lines.
func (t taskKind) String() string {
	return map[taskKind]string{register: "register", renew: "renew its lease", post: "post its status"}[t]
}

func (n *Nodes) runTask(ctx context.Context, e nodeTask) (requeueAt time.Time, err error) {
	if e.kubelet.isStopped() {
		return time.Time{}, nil
	}
	nodeCtx, err := n.as(ctx, e.kubelet)
	if err == nil {
		switch e.kind {
		case register:
			requeueAt, err = n.register(nodeCtx, e.kubelet)
		case renew:
			err = n.renew(nodeCtx, e.kubelet)
		case post:
			requeueAt, err = n.post(nodeCtx, e.kubelet)
		}
	}
	if err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) {
		n.options.Log.Warn("hollow node failed to carry out a task", "task", e.kind.String(), "node", e.kubelet.name, "error", err)
	}
	return requeueAt, err
}

// register creates a node's Node object, or adopts the existing one.
func (n *Nodes) register(ctx context.Context, k *kubelet) (time.Time, error) {
	made, err := n.api.core.Nodes().Create(ctx, n.nodeObject(k, time.Now()), metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err): // from a former run
		found, err := n.api.core.Nodes().Get(ctx, k.name, metav1.GetOptions{})
		if err != nil {
			return time.Time{}, err
		}
		n.nodeChanged(found)
		n.nodeQueue.Add(nodeTask{k, post})
	case err != nil:
		return time.Time{}, err
	default:
		n.nodeChanged(made)
		n.nodeQueue.AddAfter(nodeTask{k, post}, time.Until(n.turn(k, n.options.Status, time.Now())))
	}
	if err := n.renew(ctx, k); err != nil {
		return time.Time{}, err
	}
	if k.setRegistered() && n.unregistered.Add(-1) == 0 {
		close(n.ready)
	}
	return time.Time{}, nil
}

// turn returns when a node next does what it does in every interval. Nodes are spread evenly over the interval.
func (n *Nodes) turn(k *kubelet, interval time.Duration, now time.Time) time.Time {
	next := now.Truncate(interval).Add(interval * time.Duration(k.number) / time.Duration(n.options.Count))
	if !next.After(now) {
		next = next.Add(interval)
	}
	return next
}

// nodeChanged notes a change of a Node object.
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
	if !k.stopped && k.lease != "" && !isReadyNode(obj) {
		n.nodeQueue.Add(nodeTask{k, post})
	}
}

// isReadyNode reports whether a Node's Ready condition is true.
func isReadyNode(obj *corev1.Node) bool {
	return slices.ContainsFunc(obj.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// nodeDeleted makes a node whose Node was deleted idle. As with other kubelets, it takes a restart to register it again.
func (n *Nodes) nodeDeleted(obj *corev1.Node) {
	if k := n.kubelets[obj.Name]; k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.uid == obj.UID {
			k.uid, k.lease, k.cidrs = "", "", nil
		}
	}
}

// batches is how many batches leases are renewed in per interval: a process that wakes up for one may as well renew some more.
const batches = 40

// minParallel is how many leases are renewed one after another before it is worth using another goroutine.
const minParallel = 32

// renewLeases renews all leases, batch after batch, until ctx ends.
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
		due = due.Add(pause) // however long it took, so that no renewal is skipped
		timer.Reset(time.Until(due.Add(pause)))
	}
}

func (n *Nodes) renewBatch(ctx context.Context, batch int) {
	var due []*kubelet
	for i := batch; i < len(n.ordered); i += batches {
		due = append(due, n.ordered[i])
	}
	var wg sync.WaitGroup
	for part := range slices.Chunk(due, max(minParallel, len(due)/n.options.Workers+1)) {
		wg.Go(func() {
			for _, k := range part {
				if k.hasLease() && ctx.Err() == nil {
					if _, err := n.runTask(ctx, nodeTask{k, renew}); err != nil {
						n.nodeQueue.AddRateLimited(nodeTask{k, renew})
					}
				}
			}
		})
	}
	wg.Wait()
}

// renew renews a node's lease, or creates it.
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
	if k.uid == uid { // otherwise the Node was deleted meanwhile
		k.lease = got.ResourceVersion
	}
	return nil
}

// post posts a node's status.
func (n *Nodes) post(ctx context.Context, k *kubelet) (time.Time, error) {
	obj, found, err := n.nodes.GetStore().GetByKey(k.name)
	if err != nil {
		return time.Time{}, err
	}
	if !found {
		return time.Time{}, nil
	}
	now := time.Now()
	seen := *obj.(*corev1.Node) // a shallow copy: the status is replaced, nothing of it is changed
	posted := n.nodeObject(k, now)
	kept := posted.Status.Conditions
	for _, c := range seen.Status.Conditions {
		i := slices.IndexFunc(kept, func(k corev1.NodeCondition) bool { return k.Type == c.Type })
		switch {
		case i < 0:
			kept = append(kept, c) // set by another client
		case kept[i].Status == c.Status:
			kept[i].LastTransitionTime = c.LastTransitionTime
		}
	}
	seen.ManagedFields = nil
	seen.Status = posted.Status
	seen.Status.Conditions = kept
	if _, err := n.api.core.Nodes().UpdateStatus(ctx, &seen, metav1.UpdateOptions{}); err != nil {
		return time.Time{}, err
	}
	return n.turn(k, n.options.Status, now), nil
}

// nodeObject returns a Node as it is registered.
func (n *Nodes) nodeObject(k *kubelet, at time.Time) *corev1.Node {
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
		ObjectMeta: metav1.ObjectMeta{Name: k.name, Labels: labels, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true", localvolume.ImaginaryAnnotation: "true"}},
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

// identifier returns an identifier that a machine would have, the same at every start.
func identifier(node, of string, dashes bool) string {
	sum := sha256.Sum256([]byte(node + "/" + of))
	if !dashes {
		return fmt.Sprintf("%x", sum[:16])
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", sum[:4], sum[4:6], sum[6:8], sum[8:10], sum[10:16])
}
