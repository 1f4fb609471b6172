package pod

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"

	"skiff/internal/catalog/address"
	"skiff/internal/catalog/check"
)

// validateStatus validates an update of a pod's status. The spec is that of the old pod.
func validateStatus(new, old *corev1.Pod) field.ErrorList {
	return ratchet(&old.Spec, &old.ObjectMeta, func(allow leniency) field.ErrorList {
		root := check.At(nil)
		checkAnnotationChanges(root, new, old, allow)
		checkStatus(root.Child("status"), new, old)
		return root.Errors()
	})
}

func checkStatus(p *check.Part, new, old *corev1.Pod) {
	status, spec := &new.Status, &new.Spec
	conditions(p, status.Conditions)
	nominatedNode(p, status.NominatedNodeName, old)
	if status.ObservedGeneration < 0 {
		p.Invalid("observedGeneration", status.ObservedGeneration, "must be a non-negative integer")
	}
	p.Immutable("qosClass", status.QOSClass, old.Status.QOSClass)
	if !mayRestartAll(spec) {
		staysTerminated(p, "containerStatuses", status.ContainerStatuses, old.Status.ContainerStatuses, spec, spec.Containers)
		staysTerminated(p, "initContainerStatuses", status.InitContainerStatuses, old.Status.InitContainerStatuses, spec, spec.InitContainers)
	}
	staysTerminated(p, "ephemeralContainerStatuses", status.EphemeralContainerStatuses, old.Status.EphemeralContainerStatuses, spec, nil)
	claimStatuses(p, status.ResourceClaimStatuses, spec.ResourceClaims)
	if status.ExtendedResourceClaimStatus != nil {
		extendedClaimStatus(p.Child("extendedResourceClaimStatus"), status.ExtendedResourceClaimStatus, spec)
	}
	podIPs(p, status, &old.Status)
	hostIPs(p, status, &old.Status)
	for _, list := range statusLists(status) {
		containerUsers(p, list, spec.OS)
	}
	for _, list := range statusLists(status) {
		allocatedResources(p, list, new)
	}
}

// statusList is one of the lists of container statuses.
type statusList struct {
	name  string
	items []corev1.ContainerStatus
}

func statusLists(s *corev1.PodStatus) [3]statusList {
	return [...]statusList{{"containerStatuses", s.ContainerStatuses}, {"initContainerStatuses", s.InitContainerStatuses},
		{"ephemeralContainerStatuses", s.EphemeralContainerStatuses}}
}

func conditions(p *check.Part, list []corev1.PodCondition) {
	for i := range list {
		c, at := &list[i], p.Item("conditions", i)
		if c.ObservedGeneration < 0 {
			at.Invalid("observedGeneration", c.ObservedGeneration, "must be a non-negative integer")
		}
		switch c.Type {
		case corev1.PodScheduled, corev1.PodReady, corev1.PodInitialized:
		default:
			at.Format("Type", string(c.Type), utilvalidation.IsQualifiedName)
		}
	}
}

func nominatedNode(p *check.Part, name string, old *corev1.Pod) {
	if name == "" || name == old.Status.NominatedNodeName {
		return
	}
	formatName(p, "nominatedNodeName", name, validation.NameIsDNSSubdomain)
	if old.Spec.NodeName != "" {
		p.Forbidden("nominatedNodeName", "may not be set on pods that are already bound to a node")
	}
}

// staysTerminated refuses a status in which a terminated container that must not restart is not terminated any more. Containers not among
// those given never restart.
func staysTerminated(p *check.Part, name string, new, old []corev1.ContainerStatus, spec *corev1.PodSpec, containers []corev1.Container) {
	for i := range old {
		ended := old[i].State.Terminated
		if ended == nil {
			continue
		}
		n := slices.IndexFunc(new, func(s corev1.ContainerStatus) bool { return s.Name == old[i].Name && s.State.Terminated == nil })
		if n < 0 {
			continue
		}
		c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == old[i].Name })
		if c < 0 || !restarts(&containers[c], spec.RestartPolicy, ended.ExitCode) {
			p.Item(name, i).Forbidden("state", "may not be transitioned to non-terminated state")
		}
	}
}

// mayRestartAll reports whether the exit of some container may restart all others, whatever their restart policy.
func mayRestartAll(spec *corev1.PodSpec) bool {
	for _, list := range [...][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			for _, rule := range list[i].RestartPolicyRules {
				if rule.Action == corev1.ContainerRestartRuleActionRestartAllContainers {
					return true
				}
			}
		}
	}
	return false
}

// restarts reports whether a container that exited with a code is restarted: by the first of its restart policy rules that
// applies, else by its restart policy, else by that of the pod.
func restarts(c *corev1.Container, pod corev1.RestartPolicy, code int32) bool {
	if c.RestartPolicy == nil {
		return byPolicy(pod, code)
	}
	for _, rule := range c.RestartPolicyRules {
		if rule.ExitCodes == nil {
			continue
		}
		in := slices.Contains(rule.ExitCodes.Values, code)
		if in == (rule.ExitCodes.Operator == corev1.ContainerRestartRuleOnExitCodesOpIn) {
			return true // all actions of a rule restart the container, alone or with the others
		}
	}
	return byPolicy(corev1.RestartPolicy(*c.RestartPolicy), code)
}

func byPolicy(policy corev1.RestartPolicy, code int32) bool {
	switch policy {
	case corev1.RestartPolicyOnFailure:
		return code != 0
	case corev1.RestartPolicyNever:
		return false
	default:
		return true
	}
}

func podIPs(p *check.Part, new, old *corev1.PodStatus) {
	addresses := func(list []corev1.PodIP) []string {
		var out []string
		for _, ip := range list {
			out = append(out, ip.IP)
		}
		return out
	}
	ips := addresses(new.PodIPs)
	ipList(p, "podIPs", ips, addresses(old.PodIPs), new.PodIPs)
	if (new.PodIP != "") != (len(ips) > 0) {
		p.Invalid("podIPs", check.Internal(new.PodIPs), "podIP and podIPs must either both be set or both be unset")
	}
}

func hostIPs(p *check.Part, new, old *corev1.PodStatus) {
	addresses := func(list []corev1.HostIP) []string {
		var out []string
		for _, ip := range list {
			out = append(out, ip.IP)
		}
		return out
	}
	ips := addresses(new.HostIPs)
	if len(ips) > 0 && new.HostIP != ips[0] {
		p.Item("hostIPs", 0).Invalid("ip", ips[0], "must be equal to `hostIP`")
	}
	ipList(p, "hostIPs", ips, addresses(old.HostIPs), new.HostIPs)
}

// ipList validates addresses, of which there may be one of each family. shown is the list as errors show it.
func ipList(p *check.Part, name string, ips, old []string, shown any) {
	for i, ip := range ips {
		p.Add(address.IP(ip, old, p.Path(name).Index(i))...)
	}
	if len(ips) < 2 {
		return
	}
	dual, err := netutils.IsDualStackIPStrings(ips)
	if err != nil {
		p.Add(field.InternalError(p.Path(name), fmt.Errorf("failed to check for dual stack with error:%v", err)))
	}
	if !dual || len(ips) > 2 {
		p.Invalid(name, check.Internal(shown), "may specify no more than one IP for each IP family")
	}
}

// containerUsers validates the users of containers. Unlike the user in a spec, an image's user may be any that Linux allows.
func containerUsers(p *check.Part, list statusList, os *corev1.PodOS) {
	for i := range list.items {
		u := list.items[i].User
		if u == nil || u.Linux == nil {
			continue
		}
		at := p.Item(list.name, i).Child("user")
		switch {
		case os != nil && os.Name == corev1.Windows:
			at.Forbidden("linux", "cannot be set for a windows pod")
		case os == nil || os.Name == corev1.Linux:
			linuxUser(at.Child("linux"), u.Linux)
		}
	}
}

func linuxUser(p *check.Part, u *corev1.LinuxContainerUser) {
	if u.UID < 0 || u.UID > math.MaxUint32 {
		p.Invalid("uid", u.UID, fmt.Sprintf("must be between 0 and %d, inclusive", int64(math.MaxUint32)))
	}
	ids(p, "gid", &u.GID, utilvalidation.IsValidGroupID)
	for i, id := range u.SupplementalGroups {
		for _, msg := range utilvalidation.IsValidGroupID(id) {
			p.Add(field.Invalid(p.Path("supplementalGroups").Index(i), id, msg))
		}
	}
}
