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

// rejection is why the node does not admit a pod.
type rejection struct{ reason, message string }

// admit reports whether the node admits a pod. That is decided once, when the pod is new: a running pod is not rejected because the node has changed.
func (w *worker) admit(pod *corev1.Pod, runtime *cri.Pod) bool {
	if w.admitted {
		return true
	}
	k := w.k
	k.admission.Lock() // two pods must not both get the last of a resource
	defer k.admission.Unlock()
	if pod.Status.StartTime != nil || !runtime.Empty() {
		w.setAdmitted(true)
		return true
	}
	rejected := k.reject(pod, k.node.Node(), k.admittedPods(pod))
	if rejected == nil {
		rejected = k.allocateDevices(pod)
	}
	if rejected == nil {
		w.setAdmitted(true)
		return true
	}
	k.recorder.Event(pod, corev1.EventTypeWarning, rejected.reason, rejected.message)
	w.podFailure = &status.Failure{Reason: rejected.reason, Message: "Pod was rejected: " + rejected.message}
	w.setTerminated()
	k.writer.Finish(pod, status.Rejected(pod, rejected.reason, rejected.message, time.Now()))
	return false
}

func (w *worker) setAdmitted(yes bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.admitted = yes
}

// admittedPods returns the admitted pods that have not terminated, except one.
func (k *Kubelet) admittedPods(except *corev1.Pod) (out []*scheduling.Pod) {
	k.mu.Lock()
	workers := make([]*worker, 0, len(k.workers))
	for _, w := range k.workers {
		workers = append(workers, w)
	}
	k.mu.Unlock()
	for _, w := range workers {
		w.mu.Lock()
		pod, admitted, granted := w.pod, w.admitted, w.allocation
		w.mu.Unlock()
		if !admitted || pod == nil || pod.UID == except.UID || status.IsTerminal(pod.Status.Phase) {
			continue
		}
		if granted != nil && !granted.equal(allocationOf(pod)) {
			pod = granted.applied(pod)
		}
		out = append(out, asRequested(pod))
	}
	return out
}

// rejectByPressure rejects a pod while the node has a pressure condition; while that is memory pressure alone, only BestEffort pods.
func (k *Kubelet) rejectByPressure(pod *corev1.Pod) *rejection {
	pressure := k.node.Pressure()
	conditions := pressure.Conditions()
	if len(conditions) == 0 || eviction.Critical(pod) || pressure == (nodestatus.Pressure{Memory: true}) && podrules.QOSClass(pod) != corev1.PodQOSBestEffort {
		return nil
	}
	return &rejection{eviction.Reason, fmt.Sprintf("The node had condition: %v. ", conditions)}
}

// reject returns why a node with other pods does not admit a pod, nil if it does.
func (k *Kubelet) reject(pod *corev1.Pod, node *corev1.Node, others []*scheduling.Pod) *rejection {
	if r := k.rejectByPressure(pod); r != nil {
		return r
	}
	if os := pod.Spec.OS; os != nil && os.Name != corev1.Linux {
		return &rejection{"PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS"}
	}
	if os, ok := pod.Labels[corev1.LabelOSStable]; ok && os != "linux" {
		return &rejection{"PodOSSelectorNodeLabelDoesNotMatch", "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"}
	}
	if sc := pod.Spec.SecurityContext; sc != nil && sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict && !k.runtime.strictGroups() {
		return &rejection{"SupplementalGroupsPolicyNotSupported", "SupplementalGroupsPolicy=Strict is not supported in this node"}
	}
	if r := rejectSysctls(pod); r != nil {
		return r
	}
	if usesAppArmor(pod) && !hasAppArmor() {
		return &rejection{"AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host"}
	}
	if r := k.rejectHostPorts(pod); r != nil {
		return r
	}
	return rejectByNode(asRequested(pod), scheduling.NewNode(node, others...))
}

// asRequested returns a pod by the requests of its spec. The scheduler also counts the allocated resources of its status, but here those are decided.
func asRequested(pod *corev1.Pod) *scheduling.Pod {
	bare := *pod
	bare.Status = corev1.PodStatus{}
	return scheduling.NewPod(&bare)
}

func (s *runtimeState) strictGroups() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.features.GetSupplementalGroupsPolicy()
}

// rejectByNode applies the filters of the scheduler again, for pods that were bound without it or after the node has changed.
func rejectByNode(pod *scheduling.Pod, node *scheduling.Node) *rejection {
	if r := rejectByResources(pod, node); r != nil {
		return r
	}
	predicate := func(name, why string) *rejection {
		return &rejection{name, fmt.Sprintf("Predicate %s failed: %s", name, why)}
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

func rejectByResources(pod *scheduling.Pod, node *scheduling.Node) *rejection {
	lacks := func(name corev1.ResourceName, wanted, used, has int64) *rejection {
		if wanted == 0 || used+wanted <= has {
			return nil
		}
		return &rejection{"OutOf" + string(name), fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d", name, wanted, used, has)}
	}
	if r := lacks(corev1.ResourcePods, 1, int64(len(node.Pods)), node.Allocatable.AllowedPods); r != nil {
		return r
	}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	for _, s := range pod.Requests.Scalars {
		if !scheduling.IsExtended(s.Name) || node.Allocatable.Scalar(s.Name) > 0 { // extended resources that the node does not have are the cluster's
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

// safeSysctls are the sysctls that a pod may set: they are namespaced, net.* by the network namespace and kernel.* by the IPC namespace, and isolated from
// other pods.
var safeSysctls = map[string]bool{
	"net.ipv4.ip_local_port_range": true, "net.ipv4.tcp_syncookies": true, "net.ipv4.ping_group_range": true, "net.ipv4.ip_unprivileged_port_start": true,
	"net.ipv4.ip_local_reserved_ports": true, "net.ipv4.tcp_keepalive_time": true, "net.ipv4.tcp_fin_timeout": true, "net.ipv4.tcp_keepalive_intvl": true,
	"net.ipv4.tcp_keepalive_probes": true, "net.ipv4.tcp_rmem": true, "net.ipv4.tcp_wmem": true, "net.ipv4.tcp_slow_start_after_idle": true,
	"net.ipv4.tcp_notsent_lowat": true, "kernel.shm_rmid_forced": true,
}

func rejectSysctls(pod *corev1.Pod) *rejection {
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
		return &rejection{"SysctlForbidden", "forbidden sysctl: " + why}
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

// probeFailure returns a function that says why a probe wants a container killed.
func (k *Kubelet) probeFailure(pod *corev1.Pod) func(id string) *probe.Failure {
	return func(id string) *probe.Failure { return k.probes.Failed(pod.UID, k.runtime.name()+"://"+id) }
}
