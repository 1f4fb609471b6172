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

// allocation is the resources that the node has granted a pod. Users may resize a running pod; the node may not have that much.
type allocation struct {
	pod        *corev1.ResourceRequirements           // pod-level resources
	containers map[string]corev1.ResourceRequirements // by container name
}

// allocationOf returns the resources of a pod's spec.
func allocationOf(pod *corev1.Pod) allocation {
	a := allocation{pod: pod.Spec.Resources, containers: map[string]corev1.ResourceRequirements{}}
	eachResizable(pod, func(c *corev1.Container) { a.containers[c.Name] = c.Resources })
	return a
}

func (a allocation) equal(b allocation) bool {
	return equality.Semantic.DeepEqual(a.pod, b.pod) && equality.Semantic.DeepEqual(a.containers, b.containers)
}

// eachResizable calls do for each container that can be resized: regular ones and sidecars.
func eachResizable(pod *corev1.Pod, do func(*corev1.Container)) {
	for i := range pod.Spec.Containers {
		do(&pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; status.IsSidecar(c) {
			do(c)
		}
	}
}

// reportedAllocation returns what an earlier process has granted, as the pod's status has it; for containers without that, what the spec asks for.
func reportedAllocation(pod *corev1.Pod) allocation {
	a := allocationOf(pod)
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for _, s := range list {
			if granted, ok := a.containers[s.Name]; ok && s.State.Running != nil && s.Resources != nil {
				granted.Requests, granted.Limits = s.AllocatedResources, s.Resources.Limits
				a.containers[s.Name] = granted
			}
		}
	}
	return a
}

// applied returns the pod with the granted resources in its spec.
func (a allocation) applied(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.Resources = a.pod
	eachResizable(pod, func(c *corev1.Container) { c.Resources = a.containers[c.Name] })
	return pod
}

// allocate returns the pod with the resources that the node grants: those of its spec if the node has them, else those granted before.
func (w *worker) allocate(pod *corev1.Pod) *corev1.Pod {
	if w.allocation == nil {
		a := reportedAllocation(pod)
		w.setAllocation(&a)
	}
	wanted := allocationOf(pod)
	if wanted.equal(*w.allocation) {
		w.resizePending = nil
		return pod
	}
	k := w.k
	k.admission.Lock()
	defer k.admission.Unlock()
	node := scheduling.NewNode(k.node.Node(), k.admittedPods(pod)...)
	rejected := rejectByResources(asRequested(pod), node)
	if rejected == nil {
		w.setAllocation(&wanted)
		w.resizePending, w.resizeGeneration = nil, &pod.Generation
		k.recorder.Event(pod, corev1.EventTypeNormal, "ResizeStarted", resizeMessage("Pod resize started", pod, ""))
		return pod
	}
	reason, event := corev1.PodReasonDeferred, "ResizeDeferred"
	if rejectByResources(asRequested(pod), scheduling.NewNode(k.node.Node())) != nil {
		reason, event = corev1.PodReasonInfeasible, "ResizeInfeasible"
	}
	if w.resizePending == nil || w.resizePending.Reason != reason || w.resizePending.Message != rejected.message {
		w.resizePending = &corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: reason, Message: rejected.message, ObservedGeneration: pod.Generation,
			LastTransitionTime: metav1.Now().Rfc3339Copy()}
		k.recorder.Event(pod, corev1.EventTypeWarning, event, resizeMessage("Pod resize "+reason, pod, rejected.message))
	}
	return w.allocation.applied(pod)
}

func (w *worker) setAllocation(a *allocation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.allocation = a
}

// resizeMessage returns the message of an Event about a resize.
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

// resizeConditions returns the PodResizePending and PodResizeInProgress conditions that hold.
func (w *worker) resizeConditions() (out []corev1.PodCondition) {
	if w.resizePending != nil {
		out = append(out, *w.resizePending)
	}
	if w.resizeGeneration != nil {
		c := corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue, ObservedGeneration: *w.resizeGeneration}
		if w.resizeError != "" {
			c.Reason, c.Message = corev1.PodReasonError, w.resizeError
		}
		out = append(out, c)
	}
	return out
}

// updating is a running container whose resources are to be changed.
type updating struct {
	ID, Name string
	To       *runtimeapi.LinuxContainerResources
	Shrinks  bool // the memory limit becomes lower
}

// resourcesDiffer reports whether a container's resources differ from the desired ones, whether its resizePolicy asks for a restart to change them, and
// whether its memory limit becomes lower.
func resourcesDiffer(c *corev1.Container, current, desired *runtimeapi.LinuxContainerResources) (differs, restart, shrinks bool) {
	if current == nil {
		return false, false, false // another kubelet created the container
	}
	needsRestart := func(name corev1.ResourceName) bool {
		for _, p := range c.ResizePolicy {
			if p.ResourceName == name {
				return p.RestartPolicy == corev1.RestartContainer
			}
		}
		return false
	}
	if current.CpuShares != desired.CpuShares || current.CpuQuota != desired.CpuQuota {
		differs, restart = true, needsRestart(corev1.ResourceCPU)
	}
	if current.MemoryLimitInBytes != desired.MemoryLimitInBytes {
		differs, restart = true, restart || needsRestart(corev1.ResourceMemory)
		shrinks = desired.MemoryLimitInBytes > 0 && (current.MemoryLimitInBytes <= 0 || desired.MemoryLimitInBytes < current.MemoryLimitInBytes)
	}
	return differs, restart, shrinks
}

// resize changes the resources of running containers: first of those whose memory limit becomes lower, then the limits of the pod's cgroup, then of the others.
func (w *worker) resize(ctx context.Context, pod *corev1.Pod, list []updating) error {
	err := w.updateContainers(ctx, list, true)
	if groups, ok := w.k.options.Cgroups.(interface{ Resize(*corev1.Pod) error }); ok && err == nil {
		err = groups.Resize(pod)
	}
	if err == nil {
		err = w.updateContainers(ctx, list, false)
	}
	if err != nil {
		if w.resizeGeneration == nil {
			w.resizeGeneration = &pod.Generation
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
			w.updatedResources[u.ID] = u.To
		}
	}
	return nil
}

// resized notes that all containers have the granted resources: a resize in progress is complete.
func (w *worker) resized(pod *corev1.Pod) {
	if w.resizeGeneration == nil {
		return
	}
	w.resizeGeneration, w.resizeError = nil, ""
	w.k.recorder.Event(pod, corev1.EventTypeNormal, "ResizeCompleted", resizeMessage("Pod resize completed", pod, ""))
}
