package nodestatus

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/scheduling"
)

// status computes the status of the node. What others set in it stays: conditions and extended resources.
func (m *Manager) status(ctx context.Context, node *corev1.Node) *corev1.NodeStatus {
	s := node.Status.DeepCopy()
	capacity, allocatable := m.resources()
	s.Capacity, s.Allocatable = withExtended(capacity, s.Capacity), withExtended(allocatable, s.Allocatable)
	s.Addresses = m.addresses()
	s.DaemonEndpoints.KubeletEndpoint.Port = m.options.Port
	s.NodeInfo = m.options.Machine.Info
	s.NodeInfo.ContainerRuntimeVersion = m.options.Runtime.Version()
	s.Images = m.listImages(ctx)
	if m.options.VolumesInUse != nil {
		s.VolumesInUse = m.options.VolumesInUse()
	}
	s.DeclaredFeatures = slices.Clone(declaredFeatures)
	m.setHandlers(s)
	m.setConditions(s)
	return s
}

// declaredFeatures are what this kubelet can do that others may not, sorted, as upstream names them. The scheduler keeps pods that need one of them from
// nodes that do not declare it, and the API server refuses changes of running pods that need one there. Containers that run before the others and end
// (InPlacePodVerticalScalingInitContainers) cannot be resized.
var declaredFeatures = []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling", "RestartAllContainersOnContainerExits"}

// resources returns what the machine has, with the devices of plugins.
func (m *Manager) resources() (capacity, allocatable corev1.ResourceList) {
	capacity, allocatable = m.options.Machine.Capacity, m.options.Machine.Allocatable
	if m.options.Devices == nil {
		return capacity, allocatable
	}
	all, healthy := m.options.Devices()
	if len(all) == 0 {
		return capacity, allocatable
	}
	capacity, allocatable = capacity.DeepCopy(), allocatable.DeepCopy()
	maps.Copy(capacity, all)
	maps.Copy(allocatable, healthy)
	return capacity, allocatable
}

// withExtended returns the machine's resources, with the extended resources that somebody else has added to the node's.
func withExtended(machine, node corev1.ResourceList) corev1.ResourceList {
	out := machine.DeepCopy()
	for name, amount := range node {
		if _, ok := out[name]; !ok && scheduling.IsExtended(name) {
			out[name] = amount
		}
	}
	return out
}

func (m *Manager) addresses() (addresses []corev1.NodeAddress) {
	for _, ip := range m.options.NodeIPs {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return append(addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: m.options.NodeName})
}

// setHandlers sets the status' runtime handlers and features, sorted by name so that an unchanged status compares equal.
func (m *Manager) setHandlers(s *corev1.NodeStatus) {
	handlers, features := m.options.Runtime.Handlers()
	s.RuntimeHandlers = nil
	for _, h := range handlers {
		recursiveReadOnly, userNamespaces := h.Features.GetRecursiveReadOnlyMounts(), h.Features.GetUserNamespaces()
		s.RuntimeHandlers = append(s.RuntimeHandlers, corev1.NodeRuntimeHandler{Name: h.Name,
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursiveReadOnly, UserNamespaces: &userNamespaces}})
	}
	slices.SortFunc(s.RuntimeHandlers, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	groupsPolicy := features.GetSupplementalGroupsPolicy()
	s.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &groupsPolicy}
}

// setConditions sets the conditions that the kubelet owns: the three pressures and Ready.
func (m *Manager) setConditions(s *corev1.NodeStatus) {
	p := m.Pressure()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	set := func(kind corev1.NodeConditionType, isTrue bool, reason, message string) {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
		if isTrue {
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
	choose := func(isTrue bool, ifTrue, ifFalse string) string {
		if isTrue {
			return ifTrue
		}
		return ifFalse
	}
	set(corev1.NodeMemoryPressure, p.Memory, choose(p.Memory, "KubeletHasInsufficientMemory", "KubeletHasSufficientMemory"),
		choose(p.Memory, "kubelet has insufficient memory available", "kubelet has sufficient memory available"))
	set(corev1.NodeDiskPressure, p.Disk, choose(p.Disk, "KubeletHasDiskPressure", "KubeletHasNoDiskPressure"),
		choose(p.Disk, "kubelet has disk pressure", "kubelet has no disk pressure"))
	set(corev1.NodePIDPressure, p.PIDs, choose(p.PIDs, "KubeletHasInsufficientPID", "KubeletHasSufficientPID"),
		choose(p.PIDs, "kubelet has insufficient PID available", "kubelet has sufficient PID available"))
	if err := m.notReady(); err != nil {
		set(corev1.NodeReady, false, "KubeletNotReady", err.Error())
	} else {
		set(corev1.NodeReady, true, "KubeletReady", "kubelet is posting ready status")
	}
}

// notReady returns why the node is not ready, nil if it is.
func (m *Manager) notReady() error {
	var messages []string
	for _, err := range []error{m.options.Runtime.RuntimeError(), m.options.Runtime.NetworkError()} {
		if err != nil && !slices.Contains(messages, err.Error()) {
			messages = append(messages, err.Error())
		}
	}
	switch len(messages) {
	case 0:
		return nil
	case 1:
		return errors.New(messages[0])
	}
	return errors.New("[" + strings.Join(messages, ", ") + "]")
}

// listImages returns the largest images on the node, largest first. The runtime is asked at most once per imagesInterval.
func (m *Manager) listImages(ctx context.Context) []corev1.ContainerImage {
	m.mu.Lock()
	cached, at := m.images, m.imagesAt
	m.mu.Unlock()
	if time.Since(at) < imagesInterval || m.options.Runtime.RuntimeError() != nil {
		return cached
	}
	list, err := m.options.Runtime.ListImages(ctx)
	if err != nil {
		return cached
	}
	slices.SortFunc(list, func(a, b *runtimeapi.Image) int { return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Id, b.Id)) })
	images := make([]corev1.ContainerImage, 0, min(len(list), maxImages))
	for _, i := range list[:min(len(list), maxImages)] {
		names := slices.Concat(i.RepoDigests, i.RepoTags)
		images = append(images, corev1.ContainerImage{Names: names[:min(len(names), maxNamesPerImage)], SizeBytes: int64(i.Size)})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images, m.imagesAt = images, time.Now()
	return images
}
