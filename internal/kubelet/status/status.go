package status

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	podrules "skiff/internal/catalog/pod"
	"skiff/internal/kubelet/cri"
)

// Input is all that a pod's status is computed from.
type Input struct {
	Pod     *corev1.Pod
	Runtime *cri.Pod
	// Old is the status that was computed last, or the API's if none was.
	Old *corev1.PodStatus
	// Terminated says that the pod's containers have exited and will not be restarted, whatever the restart policy.
	Terminated bool
	// Failed is why the pod has to fail, nil if it does not: its active deadline is over, or it was evicted.
	Failed *Failure
	// DisruptionTarget is set when the pod was evicted or preempted: adds the DisruptionTarget condition.
	DisruptionTarget bool
	// Resize are the conditions of a resize that is pending or in progress.
	Resize []corev1.PodCondition
	// Failures are why containers could not be started, by name.
	Failures map[string]Failure
	// Ready sets for each container of a status whether it has started and is ready. If it is nil, running containers have and are.
	Ready func(*corev1.PodStatus)

	RuntimeName       string   // "containerd"
	HostIPs           []string // the IPs of the node, at most one per IP family
	IPs               []string // the IPs of the pod, for when the runtime has none: it forgets those of a sandbox that was stopped
	RecursiveReadOnly bool     // the runtime supports recursive read-only mounts
	Now               time.Time
}

// Failure is why something failed.
type Failure struct{ Reason, Message string }

// Of computes the status of a pod.
func Of(in Input) *corev1.PodStatus {
	s := &corev1.PodStatus{QOSClass: podrules.QOSClass(in.Pod), ObservedGeneration: in.Pod.Generation}
	in.setIPs(s)
	in.setHostIPs(s) // before readiness: probes need the pod's IP
	s.InitContainerStatuses = in.initContainers()
	s.ContainerStatuses = in.containers()
	s.EphemeralContainerStatuses = in.ephemeralContainers()
	in.setAllocated(s)

	in.setReady(s)
	s.Phase = in.phase(s)
	in.keepTerminalPhase(s)
	in.setConditions(s)
	in.setTimes(s)
	normalize(in.Pod, s)
	return s
}

// keepTerminalPhase keeps a terminal phase, and the reason and message with the phase they belong to.
func (in *Input) keepTerminalPhase(s *corev1.PodStatus) {
	if !IsTerminal(s.Phase) {
		if IsTerminal(in.Old.Phase) {
			s.Phase = in.Old.Phase
		} else if IsTerminal(in.Pod.Status.Phase) {
			s.Phase = in.Pod.Status.Phase
		}
	}
	if s.Phase == in.Old.Phase {
		s.Reason, s.Message = in.Old.Reason, in.Old.Message
		if s.Reason == "" {
			s.Reason = in.Pod.Status.Reason
		}
		if s.Message == "" {
			s.Message = in.Pod.Status.Message
		}
	}
	if in.Failed != nil {
		s.Phase, s.Reason, s.Message = corev1.PodFailed, in.Failed.Reason, in.Failed.Message
	}
	if IsTerminal(in.Pod.Status.Phase) {
		s.Phase = in.Pod.Status.Phase
	}
}

// IsTerminal reports whether a phase is terminal: Succeeded or Failed.
func IsTerminal(p corev1.PodPhase) bool { return p == corev1.PodSucceeded || p == corev1.PodFailed }

// setIPs sets the pod's IPs: one per IP family, that of the node's primary family first.
func (in *Input) setIPs(s *corev1.PodStatus) {
	ips := in.Runtime.IPs()
	if len(ips) == 0 {
		ips = in.IPs
	}
	for _, four := range families(in.HostIPs) {
		for _, ip := range ips {
			if a, err := netip.ParseAddr(ip); err == nil && a.Is4() == four {
				s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
				break
			}
		}
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
}

// families returns the IP families, the node's primary one first; true is IPv4.
func families(hostIPs []string) [2]bool {
	if len(hostIPs) > 0 {
		if a, err := netip.ParseAddr(hostIPs[0]); err == nil && !a.Is4() {
			return [2]bool{false, true}
		}
	}
	return [2]bool{true, false}
}

// setHostIPs sets the node's IPs, which are also the pod's if it is on the host network.
func (in *Input) setHostIPs(s *corev1.PodStatus) {
	if len(in.HostIPs) == 0 {
		return
	}
	s.HostIP = in.HostIPs[0]
	for _, ip := range in.HostIPs[:min(len(in.HostIPs), 2)] {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: ip})
	}
	if !in.Pod.Spec.HostNetwork {
		return
	}
	if s.PodIP == "" {
		s.PodIP, s.PodIPs = in.HostIPs[0], nil
		for _, ip := range in.HostIPs[:min(len(in.HostIPs), 2)] {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: ip})
		}
	}
}

// setAllocated sets the pod-level resources: the requests and limits of the pod's spec.
func (in *Input) setAllocated(s *corev1.PodStatus) {
	allocated := &corev1.ResourceRequirements{}
	if r := in.Pod.Spec.Resources; r != nil {
		allocated = r.DeepCopy()
	}
	allocated.Requests = resourcehelper.PodRequests(in.Pod, resourcehelper.PodResourcesOptions{})
	allocated.Limits = resourcehelper.PodLimits(in.Pod, resourcehelper.PodResourcesOptions{})
	s.Resources = allocated
	s.AllocatedResources = resourcehelper.PodRequests(in.Pod, resourcehelper.PodResourcesOptions{})
}

// setTimes sets the start time, and the transition times of conditions.
func (in *Input) setTimes(s *corev1.PodStatus) {
	now := metav1.NewTime(in.Now)
	if old := in.Old.StartTime; old != nil && !old.IsZero() {
		s.StartTime = old.DeepCopy()
	} else {
		s.StartTime = &now
	}
	s.ObservedGeneration = max(s.ObservedGeneration, in.Old.ObservedGeneration)
	for i := range s.Conditions {
		c := &s.Conditions[i]
		if !byKubelet(c.Type) && c.Type != corev1.DisruptionTarget {
			continue
		}
		c.LastTransitionTime = now
		if old := find(in.Old.Conditions, c.Type); old != nil && old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
	}
}

func find(list []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	if i := slices.IndexFunc(list, func(c corev1.PodCondition) bool { return c.Type == kind }); i >= 0 {
		return &list[i]
	}
	return nil
}
