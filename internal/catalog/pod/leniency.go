package pod

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
	"skiff/internal/catalog/quantity"
)

// leniency lists what an update may keep although it is refused in new objects, because an older version of Kubernetes accepted it.
type leniency struct {
	partialHugePages          bool
	affinitySelectorLabels    bool // label values in pod affinity that no label can have
	nodeAffinityLabels        bool // the same in required node affinity
	spreadSelectors           bool
	hostSysctls               bool // sysctls of a namespace that the pod shares with the host
	initContainerRestart      bool // resize policy RestartContainer of init containers that are no sidecars
	userNamespaceDevices      bool
	userNamespaceHostNetwork  bool
	comparingTolerations      bool
	sysAdminWithoutEscalation bool
	deletionCost              bool
}

// ratchet validates strictly, and once more with leniency if that fails and the old object needs some. The usual update, which
// is valid, costs only the strict validation.
func ratchet(old *corev1.PodSpec, oldMeta *metav1.ObjectMeta, checkWith func(leniency) field.ErrorList) field.ErrorList {
	errs := checkWith(leniency{})
	if len(errs) == 0 || old == nil {
		return errs
	}
	if allow := leniencyFor(old, oldMeta); allow != (leniency{}) {
		return checkWith(allow)
	}
	return errs
}

func leniencyFor(old *corev1.PodSpec, meta *metav1.ObjectMeta) leniency {
	violates := func(rule func(*rules, *check.Part)) bool {
		p := check.At(nil)
		rule(&rules{spec: old, meta: meta}, p)
		return len(p.Errors()) > 0
	}
	l := leniency{
		affinitySelectorLabels: violates(func(r *rules, p *check.Part) { r.affinitySelectors(p) }),
		spreadSelectors: violates(func(r *rules, p *check.Part) {
			for i := range r.spec.TopologySpreadConstraints {
				p.Selector("labelSelector", r.spec.TopologySpreadConstraints[i].LabelSelector, strictSelector)
			}
		}),
		hostSysctls:  violates(func(r *rules, p *check.Part) { r.hostSysctls(p) }),
		deletionCost: !validDeletionCost(meta.Annotations),
	}
	l.userNamespaceHostNetwork = old.HostNetwork && old.HostUsers != nil && !*old.HostUsers
	for _, t := range old.Tolerations {
		l.comparingTolerations = l.comparingTolerations || t.Operator == corev1.TolerationOpLt || t.Operator == corev1.TolerationOpGt
	}
	if a := old.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		l.nodeAffinityLabels = nodeselector.HasInvalidLabelValue(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution)
	}
	l.partialHugePages = partialHugePages(old.Overhead)
	for at, c := range containers(old) {
		l.partialHugePages = l.partialHugePages || partialHugePages(c.Resources.Limits) || partialHugePages(c.Resources.Requests)
		l.userNamespaceDevices = l.userNamespaceDevices || len(c.VolumeDevices) > 0 && old.HostUsers != nil && !*old.HostUsers
		l.sysAdminWithoutEscalation = l.sysAdminWithoutEscalation || addsSysAdmin(c.SecurityContext) && !is(c.SecurityContext.AllowPrivilegeEscalation)
		if at.list == "initContainers" && !isSidecar(c) {
			for _, policy := range c.ResizePolicy {
				l.initContainerRestart = l.initContainerRestart || policy.RestartPolicy == corev1.RestartContainer
			}
		}
	}
	return l
}

func partialHugePages(list corev1.ResourceList) bool {
	for name, q := range list {
		if quantity.IsHugePage(name) && !quantity.WholeHugePages(name, q) {
			return true
		}
	}
	return false
}
