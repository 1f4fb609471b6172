package housekeeping

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

// maxExitedPerContainer is how many exited runs of each container are kept, for their logs.
const maxExitedPerContainer = 1

// removeExitedContainers removes the exited runs of each container, except the latest maxExitedPerContainer.
func (m *Manager) removeExitedContainers(ctx context.Context) {
	list, err := m.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	for _, c := range surplusExited(list) {
		pod, namespace, name := c.Labels[cri.LabelPodName], c.Labels[cri.LabelPodNamespace], c.Labels[cri.LabelContainer]
		if !m.options.Pods.HasWorker(types.UID(c.Labels[cri.LabelPodUID])) {
			continue // it is being removed with the rest of its pod
		}
		status, err := m.options.Runtime.ContainerStatus(ctx, c.Id)
		if err != nil {
			continue
		}
		m.options.Logs.Remove(status.LogPath)
		if err := m.options.Logs.RemoveLink(pod, namespace, name, c.Id); err != nil {
			m.log.Warn("failed to remove the link to an exited container's log", "pod", namespace+"/"+pod, "container", name, "error", err)
		}
		if err := m.options.Runtime.RemoveContainer(ctx, c.Id); err != nil && !cri.IsNotFound(err) {
			m.log.Warn("failed to remove an exited container", "pod", namespace+"/"+pod, "container", name, "id", c.Id, "error", err)
		}
	}
}

// surplusExited returns the exited runs of each container that are older than the latest maxExitedPerContainer.
func surplusExited(list []*runtimeapi.Container) (surplus []*runtimeapi.Container) {
	exited := map[string][]*runtimeapi.Container{} // by pod and container
	for _, c := range list {
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			key := c.Labels[cri.LabelPodUID] + "/" + c.Labels[cri.LabelContainer]
			exited[key] = append(exited[key], c)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(exited)) {
		runs := exited[key]
		slices.SortFunc(runs, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
		surplus = append(surplus, runs[min(len(runs), maxExitedPerContainer):]...)
	}
	return surplus
}

// removeDeadSandboxes removes sandboxes that are not ready and have no containers, except the last one of each pod: its attempt number decides that of
// the next sandbox.
func (m *Manager) removeDeadSandboxes(ctx context.Context) {
	sandboxes, err := m.options.Runtime.ListPodSandboxes(ctx, nil)
	if err != nil {
		return
	}
	containers, err := m.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	hasContainers := map[string]bool{} // by sandbox id
	for _, c := range containers {
		hasContainers[c.PodSandboxId] = true
	}
	lastAttempt := map[string]uint32{} // by pod UID
	for _, s := range sandboxes {
		uid := s.Labels[cri.LabelPodUID]
		lastAttempt[uid] = max(lastAttempt[uid], s.Metadata.GetAttempt())
	}
	for _, s := range sandboxes {
		uid := s.Labels[cri.LabelPodUID]
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY || hasContainers[s.Id] || s.Metadata.GetAttempt() == lastAttempt[uid] ||
			!m.options.Pods.HasWorker(types.UID(uid)) {
			continue
		}
		if err := m.options.Runtime.RemovePodSandbox(ctx, s.Id); err != nil && !cri.IsNotFound(err) {
			m.log.Warn("failed to remove a dead sandbox", "pod", s.Labels[cri.LabelPodNamespace]+"/"+s.Labels[cri.LabelPodName], "sandbox", s.Id, "error", err)
		}
	}
}
