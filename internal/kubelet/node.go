package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// nodeState is what is known about the node itself.
type nodeState struct {
	informers informers.SharedInformerFactory
	lister    corelisters.NodeLister
	post      chan struct{} // asks for its status to be posted

	mu            sync.Mutex
	registered    *corev1.Node // as the API has it, after this process registered it
	reported      time.Time    // when its status was posted last
	spread        time.Duration
	unschedulable bool
	pressure      pressure
	images        []corev1.ContainerImage
	imagesAt      time.Time
}

// pressure is what the node has too little of.
type pressure struct{ memory, disk, pids bool }

// How often the node's status is looked at, and how often it is posted if it does not change.
const (
	nodeStatusEvery  = 10 * time.Second
	nodeReportEvery  = 5 * time.Minute
	firstNodeRetry   = 100 * time.Millisecond
	lastNodeRetry    = 7 * time.Second
	imagesEvery      = 30 * time.Second
	maxNodeImages    = 50
	maxNamesPerImage = 5
)

// postNode has the node's status looked at now.
func (k *Kubelet) postNode() {
	select {
	case k.node.post <- struct{}{}:
	default:
	}
}

// runNode registers the node and reports how it is.
func (k *Kubelet) runNode(ctx context.Context) {
	// The node is registered when the runtime has been asked once: then it can be ready from the beginning.
	for wait := time.Now().Add(500 * time.Millisecond); k.runtime.runtimeError() == errNotAsked && time.Now().Before(wait) && ctx.Err() == nil; {
		sleep(ctx, 5*time.Millisecond)
	}
	k.register(ctx)
	timer := time.NewTimer(nodeStatusEvery)
	defer timer.Stop()
	for {
		next := nodeStatusEvery
		if err := k.reportNode(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("the node's status could not be reported; trying again", "error", err)
			next = time.Second
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-k.node.post:
		}
	}
}

// register makes the node known to the API, until that has worked.
func (k *Kubelet) register(ctx context.Context) {
	for retry := firstNodeRetry; ctx.Err() == nil; retry = min(2*retry, lastNodeRetry) {
		err := k.tryRegister(ctx)
		if err == nil {
			k.recorder.Event(k.nodeRef(), corev1.EventTypeNormal, "Starting", "Starting kubelet.")
			return
		}
		if ctx.Err() == nil {
			k.log.Warn("the node could not be registered; trying again", "node", k.options.NodeName, "error", err)
		}
		sleep(ctx, retry)
	}
}

func (k *Kubelet) tryRegister(ctx context.Context) error {
	nodes := k.options.Client.Kubernetes().CoreV1().Nodes()
	fresh := k.nodeObject()
	fresh.Status = *k.nodeStatus(ctx, &corev1.Node{})
	made, err := nodes.Create(ctx, fresh, metav1.CreateOptions{})
	switch {
	case err == nil:
		k.nodeReported(made)
		return nil
	case !apierrors.IsAlreadyExists(err):
		return err
	}
	found, err := nodes.Get(ctx, k.options.NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if boot := found.Status.NodeInfo.BootID; boot != "" && boot != k.machine.Info.BootID {
		k.recorder.Eventf(k.nodeRef(), corev1.EventTypeWarning, "Rebooted", "Node %s has been rebooted, boot id: %s", found.Name, k.machine.Info.BootID)
	}
	if found, err = k.mendNode(ctx, found, fresh); err != nil {
		return err
	}
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	k.node.registered = found
	return nil
}

// mendNode gives a node that was registered before the labels and annotations it should have. Other labels are other people's.
func (k *Kubelet) mendNode(ctx context.Context, found, fresh *corev1.Node) (*corev1.Node, error) {
	want := map[string]map[string]string{"labels": {}, "annotations": {}}
	for name, value := range fresh.Labels {
		if found.Labels[name] != value {
			want["labels"][name] = value
		}
	}
	for name, value := range fresh.Annotations {
		if found.Annotations[name] != value {
			want["annotations"][name] = value
		}
	}
	if len(want["labels"])+len(want["annotations"]) == 0 {
		return found, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": want})
	if err != nil {
		return nil, err
	}
	return k.options.Client.Kubernetes().CoreV1().Nodes().Patch(ctx, found.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

// nodeObject is the node as it registers, but for its status.
func (k *Kubelet) nodeObject() *corev1.Node {
	name := k.options.NodeName
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": runtime.GOARCH}
	maps.Copy(labels, k.options.Labels)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec:       corev1.NodeSpec{Taints: k.options.Taints},
	}
}

// nodeRef is what events about the node are about.
func (k *Kubelet) nodeRef() *corev1.ObjectReference {
	ref := &corev1.ObjectReference{Kind: "Node", Name: k.options.NodeName}
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	if k.node.registered != nil {
		ref.UID = k.node.registered.UID
	}
	return ref
}

func (k *Kubelet) nodeReported(n *corev1.Node) {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	k.node.registered, k.node.reported = n, time.Now()
	k.node.spread = time.Duration(float64(nodeReportEvery) * (rand.Float64() - 0.5)) // so that not all nodes report at the same time
}

// reportNode posts the node's status if it has changed, or was posted long ago.
func (k *Kubelet) reportNode(ctx context.Context) error {
	k.node.mu.Lock()
	now, due := k.node.registered, time.Since(k.node.reported) > nodeReportEvery+k.node.spread
	k.node.mu.Unlock()
	if now == nil {
		return errors.New("the node is not registered yet")
	}
	if seen, err := k.node.lister.Get(k.options.NodeName); err == nil && newer(seen.ResourceVersion, now.ResourceVersion) {
		now = seen
	}
	k.tellSchedulable(now)
	status := k.nodeStatus(ctx, now)
	if !due && nodeStatusEqual(&now.Status, status) {
		return nil
	}
	patch, err := nodePatch(now, status)
	if err != nil {
		return err
	}
	nodes := k.options.Client.Kubernetes().CoreV1().Nodes()
	after, err := nodes.Patch(ctx, now.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return err // a node that somebody deleted stays so until the kubelet is started anew
	}
	k.tellNode(now, after)
	k.nodeReported(after)
	return nil
}

func newer(a, b string) bool { return len(a) > len(b) || len(a) == len(b) && a > b }

// tellNode says in events what becomes of the node.
func (k *Kubelet) tellNode(before, after *corev1.Node) {
	tell := func(was, is bool, yes, no string) {
		event := no
		if is {
			event = yes
		}
		if was != is {
			k.recorder.Eventf(k.nodeRef(), corev1.EventTypeNormal, event, "Node %s status is now: %s", k.options.NodeName, event)
		}
	}
	is := func(n *corev1.Node, kind corev1.NodeConditionType) bool {
		return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
	}
	for kind, events := range map[corev1.NodeConditionType][2]string{
		corev1.NodeReady:          {"NodeReady", "NodeNotReady"},
		corev1.NodeMemoryPressure: {"NodeHasInsufficientMemory", "NodeHasSufficientMemory"},
		corev1.NodeDiskPressure:   {"NodeHasDiskPressure", "NodeHasNoDiskPressure"},
		corev1.NodePIDPressure:    {"NodeHasInsufficientPID", "NodeHasSufficientPID"},
	} {
		tell(is(before, kind), is(after, kind), events[0], events[1])
	}
}

// tellSchedulable says in an event when somebody has decided whether pods may be scheduled onto the node.
func (k *Kubelet) tellSchedulable(n *corev1.Node) {
	k.node.mu.Lock()
	changed := k.node.unschedulable != n.Spec.Unschedulable
	k.node.unschedulable = n.Spec.Unschedulable
	k.node.mu.Unlock()
	event := "NodeSchedulable"
	if n.Spec.Unschedulable {
		event = "NodeNotSchedulable"
	}
	if changed {
		k.recorder.Eventf(k.nodeRef(), corev1.EventTypeNormal, event, "Node %s status is now: %s", n.Name, event)
	}
}

func nodePatch(now *corev1.Node, status *corev1.NodeStatus) ([]byte, error) {
	before, err := json.Marshal(corev1.Node{Status: *now.Status.DeepCopy()})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Node{Status: *status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("working out what changed of the node's status: %w", err)
	}
	// Addresses have no key that they could be merged by: all of them are sent.
	var fields map[string]map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return nil, err
	}
	if fields["status"]["addresses"] != nil {
		all := []any{map[string]any{"$patch": "replace"}}
		for _, a := range status.Addresses {
			all = append(all, a)
		}
		fields["status"]["addresses"] = all
		return json.Marshal(fields)
	}
	return patch, nil
}

// nodeStatusEqual says whether two statuses say the same, times of heartbeats aside.
func nodeStatusEqual(a, b *corev1.NodeStatus) bool {
	still := func(s *corev1.NodeStatus) corev1.NodeStatus {
		c := *s
		c.Conditions = slices.Clone(c.Conditions)
		for i := range c.Conditions {
			c.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		slices.SortFunc(c.Conditions, func(x, y corev1.NodeCondition) int { return strings.Compare(string(x.Type), string(y.Type)) })
		return c
	}
	return equality.Semantic.DeepEqual(still(a), still(b))
}
