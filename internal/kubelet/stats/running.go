package stats

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

// running returns the sandboxes that are ready, one of each pod, in the order of their pods' names, and the containers that run in each. What has
// ended uses nothing.
func (p *Provider) running(ctx context.Context) ([]*runtimeapi.PodSandbox, map[string][]*runtimeapi.Container, error) {
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	sandboxes, err := p.opts.Runtime.ListPodSandboxes(ctx, &runtimeapi.PodSandboxFilter{State: ready})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list pods: %w", err)
	}
	runs := &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	list, err := p.opts.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{State: runs})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list containers: %w", err)
	}
	containers := map[string][]*runtimeapi.Container{}
	for _, c := range list {
		if c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && c.Metadata != nil {
			containers[c.PodSandboxId] = append(containers[c.PodSandboxId], c)
		}
	}
	for _, of := range containers {
		slices.SortFunc(of, func(a, b *runtimeapi.Container) int {
			return cmp.Or(cmp.Compare(a.Metadata.Name, b.Metadata.Name), cmp.Compare(a.CreatedAt, b.CreatedAt))
		})
	}
	// Of two sandboxes of a pod the newer one counts.
	slices.SortFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) int {
		x, y := a.Metadata, b.Metadata
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()), cmp.Compare(x.GetUid(), y.GetUid()), cmp.Compare(b.CreatedAt, a.CreatedAt))
	})
	sandboxes = slices.DeleteFunc(sandboxes, func(s *runtimeapi.PodSandbox) bool {
		return s.State != runtimeapi.PodSandboxState_SANDBOX_READY || s.Metadata == nil || s.Labels[cri.LabelPodUID] == ""
	})
	sandboxes = slices.CompactFunc(sandboxes, func(a, b *runtimeapi.PodSandbox) bool { return a.Metadata.Uid == b.Metadata.Uid })
	return sandboxes, containers, nil
}
