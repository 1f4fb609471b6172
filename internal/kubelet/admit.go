package kubelet

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	podrules "skiff/internal/catalog/pod"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/eviction"
	"skiff/internal/kubelet/nodestatus"
	"skiff/internal/kubelet/probe"
	"skiff/internal/kubelet/status"
	"skiff/internal/scheduling"
)

// refusal is why the node does not take a pod.
type refusal struct{ reason, message string }

// admit says whether the node takes a pod. It is asked once, when the pod is new: one that runs is not driven out because the node has changed.
func (w *worker) admit(pod *corev1.Pod, runtime *cri.Pod) bool {
	if w.admitted {
		return true
	}
	k := w.k
	k.admission.Lock() // two pods must not both get the last of something
	defer k.admission.Unlock()
	if pod.Status.StartTime != nil || !runtime.Empty() {
		w.setAdmitted(true)
		return true
	}
	refused := k.refuse(pod, k.node.Node(), k.admittedPods(pod))
	if refused == nil {
		w.setAdmitted(true)
		return true
	}
	k.recorder.Event(pod, corev1.EventTypeWarning, refused.reason, refused.message)
	w.failed = &status.Failure{Reason: refused.reason, Message: "Pod was rejected: " + refused.message}
	w.setFinished()
	k.writer.Finish(pod, status.Rejected(pod, refused.reason, refused.message, time.Now()))
	return false
}

func (w *worker) setAdmitted(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitted = yes
}

// admittedPods are the pods that the node has taken and that have not ended.
func (k *Kubelet) admittedPods(but *corev1.Pod) (out []*scheduling.Pod) {
	k.mu.Lock()
	workers := make([]*worker, 0, len(k.workers))
	for _, w := range k.workers {
		workers = append(workers, w)
	}
	k.mu.Unlock()
	for _, w := range workers {
		w.mu.Lock()
		pod, admitted, agreed := w.pod, w.admitted, w.allocation
		w.mu.Unlock()
		if !admitted || pod == nil || pod.UID == but.UID || status.Ended(pod.Status.Phase) {
			continue
		}
		if agreed != nil && !agreed.equal(allocationOf(pod)) {
			pod = agreed.applied(pod)
		}
		out = append(out, asks(pod))
	}
	return out
}

// refuseByPressure keeps pods away from a node that has too little of something: if that is memory, only those that ask for none.
func (k *Kubelet) refuseByPressure(pod *corev1.Pod) *refusal {
	pressure := k.node.Pressure()
	conditions := pressure.Conditions()
	if len(conditions) == 0 || eviction.Critical(pod) || pressure == (nodestatus.Pressure{Memory: true}) && podrules.QOSClass(pod) != corev1.PodQOSBestEffort {
		return nil
	}
	return &refusal{eviction.Reason, fmt.Sprintf("The node had condition: %v. ", conditions)}
}

// refuse says why a node with some pods does not take another one; nil if it does.
func (k *Kubelet) refuse(pod *corev1.Pod, node *corev1.Node, others []*scheduling.Pod) *refusal {
	if r := k.refuseByPressure(pod); r != nil {
		return r
	}
	if os := pod.Spec.OS; os != nil && os.Name != corev1.Linux {
		return &refusal{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if os, ok := pod.Labels[corev1.LabelOSStable]; ok && os != "linux" {
		return &refusal{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict && !k.runtime.strictGroups() {
		return &refusal{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}
	}
	if r := refuseSysctls(pod); r != nil {
		return r
	}
	if usesAppArmor(pod) && !hasAppArmor() {
		return &refusal{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	if r := k.refuseHostPorts(pod); r != nil {
		return r
	}
	return refuseByNode(asks(pod), scheduling.NewNode(node, others...))
}

// asks is a pod by what it asks for: the scheduler also counts what it was reported to have, but here it is decided what it has.
func asks(pod *corev1.Pod) *scheduling.Pod {
	bare := *pod
	bare.Status = corev1.PodStatus{}
	return scheduling.NewPod(&bare)
}

func (s *runtimeState) strictGroups() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.features.GetSupplementalGroupsPolicy()
}

// refuseByNode asks what the scheduler asked before, for pods that did not come from it or came too late.
func refuseByNode(pod *scheduling.Pod, node *scheduling.Node) *refusal {
	if r := refuseByResources(pod, node); r != nil {
		return r
	}
	predicate := func(name, why string) *refusal {
		return &refusal{name, fmt.Sprintf("Predicate %s failed: %s", name, why)}
	}
	bare := *node.Node
	bare.Spec.Taints = nil
	if fits, _ := scheduling.OnDaemonNode(pod, &bare); !fits {
		return predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
	}
	for _, wanted := range pod.HostPorts {
		if slices.ContainsFunc(node.UsedPorts, wanted.Conflicts) {
			return predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
		}
	}
	if _, stays := scheduling.OnDaemonNode(pod, node.Node); !stays {
		return predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
	}
	return nil
}

func refuseByResources(pod *scheduling.Pod, node *scheduling.Node) *refusal {
	lacks := func(name corev1.ResourceName, wanted, used, has int64) *refusal {
		if wanted == 0 || used+wanted <= has {
			return nil
		}
		return &refusal{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, wanted, used, has)}
	}
	if r := lacks(corev1.ResourcePods, 1, int64(len(node.Pods)), node.Allocatable.AllowedPods); r != nil {
		return r
	}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, s := range pod.Requests.Scalars {
		if !scheduling.IsExtended(s.Name) || node.Allocatable.Scalar(s.Name) > 0 { // others are the cluster's, not the node's
			names = append(names, s.Name)
		}
	}
	for _, name := range names {
		if r := lacks(name, pod.Requests.Of(name), node.Requested.Of(name), node.Allocatable.Of(name)); r != nil {
			return r
		}
	}
	return nil
}

// safeSysctls are settings of the kernel that a pod may change, as they are its own and harm nobody. Those in the first are of the network
// namespace, the rest of that for interprocess communication.
var safeSysctls = map[string]bool{
	"net.ipv4.ip_local_port_range": true, "net.ipv4.tcp_syncookies": true, "net.ipv4.ping_group_range": true, "net.ipv4.ip_unprivileged_port_start": true,
	"net.ipv4.ip_local_reserved_ports": true, "net.ipv4.tcp_keepalive_time": true, "net.ipv4.tcp_fin_timeout": true, "net.ipv4.tcp_keepalive_intvl": true,
	"net.ipv4.tcp_keepalive_probes": true, "net.ipv4.tcp_rmem": true, "net.ipv4.tcp_wmem": true, "net.ipv4.tcp_slow_start_after_idle": true,
	"net.ipv4.tcp_notsent_lowat": true, "kernel.shm_rmid_forced": true,
}

func refuseSysctls(pod *corev1.Pod) *refusal {
	for name := range sysctls(pod) {
		why := ""
		switch {
		case !safeSysctls[name]:
			why = fmt.Sprintf("%q not allowlisted", name)
		case strings.HasPrefix(name, "net.") && pod.Spec.HostNetwork:
			why = fmt.Sprintf("%q not allowed with host net enabled", name)
		case strings.HasPrefix(name, "kernel.") && pod.Spec.HostIPC:
			why = fmt.Sprintf("%q not allowed with host ipc enabled", name)
		default:
			continue
		}
		return &refusal{"SysctlForbidden", "forbidden sysctl: " + why}
	}
	return nil
}

func usesAppArmor(pod *corev1.Pod) bool {
	uses := func(c corev1.Container) bool {
		p := effective(pod, &c).AppArmorProfile
		return p != nil && p.Type != corev1.AppArmorProfileTypeUnconfined
	}
	return slices.ContainsFunc(pod.Spec.InitContainers, uses) || slices.ContainsFunc(pod.Spec.Containers, uses)
}

func hasAppArmor() bool {
	data, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(data), "Y")
}

// probeFailure says of a pod's containers why probes want them killed.
func (k *Kubelet) probeFailure(pod *corev1.Pod) func(id string) *probe.Failure {
	return func(id string) *probe.Failure { return k.probes.Failed(pod.UID, k.runtime.name()+"://"+id) }
}
