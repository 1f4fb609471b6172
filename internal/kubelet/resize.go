package kubelet

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/status"
	"skiff/internal/scheduling"
)

// allocation is what of a pod's resources the node has agreed to. Users may change those of a pod that runs; the node may not have that much.
type allocation struct {
	pod        *corev1.ResourceRequirements
	containers map[string]corev1.ResourceRequirements
}

// allocationOf is what a pod asks for.
func allocationOf(pod *corev1.Pod) allocation {
	a := allocation{pod: pod.Spec.Resources, containers: map[string]corev1.ResourceRequirements{}}
	eachResizable(pod, func(c *corev1.Container) { a.containers[c.Name] = c.Resources })
	return a
}

func (a allocation) equal(b allocation) bool {
	return equality.Semantic.DeepEqual(a.pod, b.pod) && equality.Semantic.DeepEqual(a.containers, b.containers)
}

// eachResizable calls do for the containers whose resources can be changed while they run.
func eachResizable(pod *corev1.Pod, do func(*corev1.Container)) {
	for i := range pod.Spec.Containers {
		do(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; status.Sidecar(c) {
			do(c)
		}
	}
}

// reportedAllocation is what the kubelet before this one agreed to, as far as the pod's status tells, else what the pod asks for.
func reportedAllocation(pod *corev1.Pod) allocation {
	a := allocationOf(pod)
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range list {
			if asked, ok := a.containers[s.Name]; ok && s.State.Running != nil && s.Resources != nil {
				asked.Requests, asked.Limits = s.AllocatedResources, s.Resources.Limits
				a.containers[s.Name] = asked
			}
		}
	}
	return a
}

// applied is the pod with the resources that were agreed to.
func (a allocation) applied(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Resources = a.pod
	eachResizable(pod, func(c *corev1.Container) { c.Resources = a.containers[c.Name] })
	return pod
}

// allocate is the pod with the resources that the node agrees to: those it asks for, if the node has them.
func (w *worker) allocate(pod *corev1.Pod) *corev1.Pod {
	if w.allocation == nil {
		a := reportedAllocation(pod)
		w.setAllocation(&a)
	}
	wanted := allocationOf(pod)
	if wanted.equal(*w.allocation) {
		w.pending = nil
		return pod
	}
	k := w.k
	k.admission.Lock()
	defer k.admission.Unlock()
	node := scheduling.NewNode(k.node.Node(), k.admittedPods(pod)...)
	refused := refuseByResources(asks(pod), node)
	if refused == nil {
		w.setAllocation(&wanted)
		w.pending, w.resizing = nil, &pod.Generation
		k.recorder.Event(pod, corev1.EventTypeNormal, "ResizeStarted", resizeMessage("Pod resize started", pod, ""))
		return pod
	}
	reason, event := corev1.PodReasonDeferred, "ResizeDeferred"
	if refuseByResources(asks(pod), scheduling.NewNode(k.node.Node())) != nil {
		reason, event = corev1.PodReasonInfeasible, "ResizeInfeasible"
	}
	if w.pending == nil || w.pending.Reason != reason || w.pending.Message != refused.message {
		w.pending = &corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, Message: refused.message, ObservedGeneration: pod.Generation,
			LastTransitionTime: metav1.Now().Rfc3339Copy()}
		k.recorder.Event(pod, corev1.EventTypeWarning, event, resizeMessage("Pod resize "+reason, pod, refused.message))
	}
	return w.allocation.applied(pod)
}

func (w *worker) setAllocation(a *allocation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allocation = a
}

// resizeMessage is what an event about a resize says.
func resizeMessage(what string, pod *corev1.Pod, problem string) string {
	type one struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var all struct {
		InitContainers []one  `json:"initContainers,omitempty"`
		Containers     []one  `json:"containers,omitempty"`
		Generation     int64  `json:"generation"`
		Error          string `json:"error,omitempty"`
	}
	for _, c := range pod.Spec.InitContainers {
		all.InitContainers = append(all.InitContainers, one{c.Name, *c.Resources.DeepCopy()})
	}
	for _, c := range pod.Spec.Containers {
		all.Containers = append(all.Containers, one{c.Name, *c.Resources.DeepCopy()})
	}
	all.Generation, all.Error = pod.Generation, problem
	text, err := json.Marshal(all)
	if err != nil {
		return what
	}
	return fmt.Sprintf("%s: %s", what, text)
}

// resizeConditions are what a pod's status says about its resources.
func (w *worker) resizeConditions() (out []corev1.PodCondition) {
	if w.pending != nil {
		out = append(out, *w.pending)
	}
	if w.resizing != nil {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: *w.resizing}
		if w.resizeError != "" {
			c.Reason, c.Message = corev1.PodReasonError, w.resizeError
		}
		out = append(out, c)
	}
	return out
}

// updating is a container whose resources are to be changed while it runs.
type updating struct {
	ID, Name string
	To       *runtimeapi.LinuxContainerResources
	Shrinks  bool
}

// changed says whether a container has other resources than it should, whether that can be changed only by a restart, and whether it gets less.
func changed(c *corev1.Container, has, should *runtimeapi.LinuxContainerResources) (differs, restart, shrinks bool) {
	if has == nil {
		return false, false, false // it was not made by us
	}
	needsRestart := func(name corev1.ResourceName) bool {
		for _, p := range c.ResizePolicy {
			if p.ResourceName == name {
				return p.RestartPolicy == corev1.RestartContainer
			}
		}
		return false
	}
	if has.CpuShares != should.CpuShares || has.CpuQuota != should.CpuQuota {
		differs, restart = true, needsRestart(corev1.ResourceCPU)
	}
	if has.MemoryLimitInBytes != should.MemoryLimitInBytes {
		differs, restart = true, restart || needsRestart(corev1.ResourceMemory)
		shrinks = should.MemoryLimitInBytes > 0 && (has.MemoryLimitInBytes <= 0 || should.MemoryLimitInBytes < has.MemoryLimitInBytes)
	}
	return differs, restart, shrinks
}

// resize changes the resources of containers that run: first of those that get less, then the pod's own limits, then of those that get more.
func (w *worker) resize(ctx context.Context, pod *corev1.Pod, list []updating) error {
	err := w.updateContainers(ctx, list, true)
	if groups, ok := w.k.options.Cgroups.(interface{ Resize(*corev1.Pod) error }); ok && err == nil {
		err = groups.Resize(pod)
	}
	if err == nil {
		err = w.updateContainers(ctx, list, false)
	}
	if err != nil {
		if w.resizing == nil {
			w.resizing = &pod.Generation
		}
		if w.resizeError != err.Error() {
			w.resizeError = err.Error()
			w.k.recorder.Event(pod, corev1.EventTypeWarning, "ResizeError", resizeMessage("Pod resize error", pod, w.resizeError))
		}
		return err
	}
	return nil
}

func (w *worker) updateContainers(ctx context.Context, list []updating, shrinks bool) error {
	for _, u := range list {
		if u.Shrinks == shrinks {
			if err := w.k.options.Runtime.UpdateContainerResources(ctx, u.ID, u.To); err != nil {
				return fmt.Errorf("changing the resources of container %s: %w", u.Name, err)
			}
			w.updated[u.ID] = u.To
		}
	}
	return nil
}

// resized notes that all containers have the resources they should.
func (w *worker) resized(pod *corev1.Pod) {
	if w.resizing == nil {
		return
	}
	w.resizing, w.resizeError = nil, ""
	w.k.recorder.Event(pod, corev1.EventTypeNormal, "ResizeCompleted", resizeMessage("Pod resize completed", pod, ""))
}
