package kubelet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/scheduling"
)

// nodeStatus is how the node is. What others set of it stays.
func (k *Kubelet) nodeStatus(ctx context.Context, now *corev1.Node) *corev1.NodeStatus {
	s := now.Status.DeepCopy()
	s.Capacity, s.Allocatable = withOthers(k.machine.Capacity, s.Capacity), withOthers(k.machine.Allocatable, s.Allocatable)
	s.Addresses = k.addresses()
	s.DaemonEndpoints.KubeletEndpoint.Port = k.options.Port
	s.NodeInfo = k.machine.Info
	s.NodeInfo.ContainerRuntimeVersion = k.runtime.describe()
	s.Images = k.nodeImages(ctx)
	k.runtime.describeHandlers(s)
	k.setNodeConditions(s)
	return s
}

// withOthers adds the extended resources that somebody else says the node has.
func withOthers(own, before corev1.ResourceList) corev1.ResourceList {
	out := own.DeepCopy()
	for name, amount := range before {
		if _, ours := out[name]; !ours && scheduling.IsExtended(name) {
			out[name] = amount
		}
	}
	return out
}

func (k *Kubelet) addresses() (out []corev1.NodeAddress) {
	for _, ip := range k.options.NodeIPs {
		out = append(out, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return append(out, corev1.NodeAddress{Type: corev1.NodeHostName, Address: k.options.NodeName})
}

// describeHandlers says which ways of running pods the runtime has.
func (s *runtimeState) describeHandlers(to *corev1.NodeStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.RuntimeHandlers = nil
	for _, h := range s.handlers {
		rro, users := h.Features.GetRecursiveReadOnlyMounts(), h.Features.GetUserNamespaces()
		to.RuntimeHandlers = append(to.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: h.Name,
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &rro, UserNamespaces: &users}})
	}
	slices.SortFunc(to.RuntimeHandlers, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	groups := s.features.GetSupplementalGroupsPolicy()
	to.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &groups}
}

// setNodeConditions says what is wrong with the node, if anything is.
func (k *Kubelet) setNodeConditions(s *corev1.NodeStatus) {
	k.node.mu.Lock()
	p := k.node.pressure
	k.node.mu.Unlock()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	set := func(kind corev1.NodeConditionType, yes bool, reason, message string) {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
		if yes {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(s.Conditions, func(o corev1.NodeCondition) bool { return o.Type == kind })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			return
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
	}
	either := func(yes bool, bad, good string) string {
		if yes {
			return bad
		}
		return good
	}
	set(corev1.NodeMemoryPressure, p.memory, either(p.memory, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
		either(p.memory, "kubelet has insufficient memory available", "kubelet has sufficient memory available"))
	set(corev1.NodeDiskPressure, p.disk, either(p.disk, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
		either(p.disk, "kubelet has disk pressure", "kubelet has no disk pressure"))
	set(corev1.NodePIDPressure, p.pids, either(p.pids, "KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
		either(p.pids, "kubelet has insufficient PID available", "kubelet has sufficient PID available"))
	if err := k.notReady(); err != nil {
		set(corev1.NodeReady, false, "KubeletNotReady", err.Error())
	} else {
		set(corev1.NodeReady, true, "KubeletReady", "kubelet is posting ready status")
	}
}

// notReady is why the node is not ready.
func (k *Kubelet) notReady() error {
	var all []string
	for _, err := range []error{k.runtime.runtimeError(), k.runtime.networkError()} {
		if err != nil && !slices.Contains(all, err.Error()) {
			all = append(all, err.Error())
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return errors.New(all[0])
	}
	return errors.New("[" + strings.Join(all, ", ") + "]")
}

// nodeImages are the largest images that the node has. They are listed now and then only.
func (k *Kubelet) nodeImages(ctx context.Context) []corev1.ContainerImage {
	k.node.mu.Lock()
	known, at := k.node.images, k.node.imagesAt
	k.node.mu.Unlock()
	if time.Since(at) < imagesEvery || k.runtime.runtimeError() != nil {
		return known
	}
	list, err := k.options.Runtime.ListImages(ctx)
	if err != nil {
		return known
	}
	slices.SortFunc(list, func(a, b *runtimeapi.Image) int { return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Id, b.Id)) })
	images := make([]corev1.ContainerImage, 0, min(len(list), maxNodeImages))
	for _, i := range list[:min(len(list), maxNodeImages)] {
		names := slices.Concat(i.RepoDigests, i.RepoTags)
		images = append(images, corev1.ContainerImage{Names: names[:min(len(names), maxNamesPerImage)], SizeBytes: int64(i.Size)})
	}
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	k.node.images, k.node.imagesAt = images, time.Now()
	return images
}
