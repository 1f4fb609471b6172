package devices

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// callTimeout is how long a call to a plugin may take.
const callTimeout = 30 * time.Second

// containerDevices are the devices of a container, by resource.
type containerDevices map[string]*allocation

// allocation are the devices of one resource that a container has, and what comes with them.
type allocation struct {
	Devices  []string
	Response *api.ContainerAllocateResponse
}

// Allocate chooses devices for the containers of a pod that ask for some and have none yet. Those of an init container that has ended are for the containers after it, too.
func (m *Manager) Allocate(ctx context.Context, pod *corev1.Pod) error {
	m.allocating.Lock()
	defer m.allocating.Unlock()
	m.mu.Lock()
	known := len(m.resources) > 0
	_, had := m.pods[pod.UID]
	m.mu.Unlock()
	if !known {
		return nil
	}
	err := m.allocatePod(ctx, pod)
	if err != nil && !had {
		err = errors.Join(err, m.Release(pod.UID))
	}
	return err
}

func (m *Manager) allocatePod(ctx context.Context, pod *corev1.Pod) error {
	reusable := map[string][]string{}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		sidecar := c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		if err := m.allocateContainer(ctx, pod.UID, c, reusable, !sidecar); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := m.allocateContainer(ctx, pod.UID, &pod.Spec.Containers[i], reusable, false); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) allocateContainer(ctx context.Context, uid types.UID, c *corev1.Container, reusable map[string][]string, leaves bool) error {
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		wanted := c.Resources.Limits[name]
		a, err := m.allocate(ctx, uid, c.Name, string(name), int(wanted.Value()), reusable[string(name)])
		if err != nil {
			return err
		}
		if a == nil {
			continue
		}
		rest := slices.DeleteFunc(slices.Clone(reusable[string(name)]), func(id string) bool { return slices.Contains(a.Devices, id) })
		if leaves {
			rest = append(rest, a.Devices...)
		}
		reusable[string(name)] = rest
	}
	return nil
}

// allocate chooses devices of a resource for a container, nil if the resource is none of devices.
func (m *Manager) allocate(ctx context.Context, uid types.UID, container, name string, wanted int, reusable []string) (*allocation, error) {
	m.mu.Lock()
	p := m.resources[name]
	has := m.pods[uid][container][name]
	if p == nil || has != nil || wanted == 0 {
		m.mu.Unlock()
		return has, nil
	}
	chosen, available, err := m.choose(p, name, wanted, reusable)
	client, options := p.client, p.options
	m.mu.Unlock()
	if err == nil && client == nil {
		err = fmt.Errorf("cannot allocate unregistered device %s", name)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if options.GetGetPreferredAllocationAvailable() && len(available) > wanted {
		if chosen, err = preferred(ctx, client, available, reusable, chosen, wanted); err != nil {
			return nil, err
		}
	}
	answer, err := client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: chosen}}})
	if err != nil {
		return nil, err
	}
	if len(answer.ContainerResponses) == 0 {
		return nil, fmt.Errorf("no containers return in allocation response %v", answer)
	}
	a := &allocation{Devices: chosen, Response: answer.ContainerResponses[0]}
	m.mu.Lock()
	if m.pods[uid] == nil {
		m.pods[uid] = map[string]containerDevices{}
	}
	if m.pods[uid][container] == nil {
		m.pods[uid][container] = containerDevices{}
	}
	m.pods[uid][container][name] = a
	m.mu.Unlock()
	return a, m.save()
}

// choose returns devices for a container, first those that an earlier container of the pod leaves, and all among which there was a choice. The manager is locked.
func (m *Manager) choose(p *plugin, name string, wanted int, reusable []string) (chosen, available []string, err error) {
	used := map[string]bool{}
	for _, containers := range m.pods {
		for _, c := range containers {
			if a := c[name]; a != nil {
				for _, id := range a.Devices {
					used[id] = true
				}
			}
		}
	}
	healthy := 0
	for _, id := range slices.Sorted(maps.Keys(p.devices)) {
		if !p.devices[id] {
			continue
		}
		healthy++
		if !used[id] {
			available = append(available, id)
		}
	}
	reusable = slices.DeleteFunc(slices.Clone(reusable), func(id string) bool { return !p.devices[id] })
	free := len(available)
	available = append(reusable, available...)
	switch {
	case healthy == 0:
		return nil, nil, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", name)
	case len(available) < wanted:
		return nil, nil, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", name, wanted-len(reusable), free)
	}
	return available[:wanted:wanted], available, nil
}

// preferred asks the plugin which devices go best together. An answer that does not fit is not taken.
func preferred(ctx context.Context, client api.DevicePluginClient, available, reusable, chosen []string, wanted int) ([]string, error) {
	var must []string
	for _, id := range chosen {
		if slices.Contains(reusable, id) {
			must = append(must, id)
		}
	}
	answer, err := client.GetPreferredAllocation(ctx, &api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
		{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(wanted)}}})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(answer.ContainerResponses) == 0 {
		return chosen, nil
	}
	ids := slices.Compact(slices.Sorted(slices.Values(answer.ContainerResponses[0].DeviceIDs)))
	fits := len(ids) == wanted
	for _, id := range ids {
		fits = fits && slices.Contains(available, id)
	}
	for _, id := range must {
		fits = fits && slices.Contains(ids, id)
	}
	if !fits {
		return chosen, nil
	}
	return ids, nil
}

// Release gives back the devices of a pod. None of its containers may run.
func (m *Manager) Release(uid types.UID) error {
	m.mu.Lock()
	_, has := m.pods[uid]
	delete(m.pods, uid)
	m.mu.Unlock()
	if !has {
		return nil
	}
	return m.save()
}

// Of returns what a container gets with its devices, one response for each of its resources. Plugins that want to are told before that the container starts.
func (m *Manager) Of(ctx context.Context, pod *corev1.Pod, container string) ([]*api.ContainerAllocateResponse, error) {
	if err := m.Allocate(ctx, pod); err != nil { // a pod may have been admitted by a kubelet whose file was lost
		return nil, err
	}
	m.mu.Lock()
	has := maps.Clone(m.pods[pod.UID][container])
	m.mu.Unlock()
	var list []*api.ContainerAllocateResponse
	for _, name := range slices.Sorted(maps.Keys(has)) {
		if err := m.preStart(ctx, name, has[name].Devices); err != nil {
			return nil, err
		}
		list = append(list, has[name].Response)
	}
	return list, nil
}

func (m *Manager) preStart(ctx context.Context, name string, ids []string) error {
	m.mu.Lock()
	var client api.DevicePluginClient
	required := false
	if p := m.resources[name]; p != nil {
		client, required = p.client, p.options.GetPreStartRequired()
	}
	m.mu.Unlock()
	if !required {
		return nil
	}
	if client == nil {
		return errors.New("device plugin PreStartContainer rpc failed with err: the plugin of " + name + " is gone")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := client.PreStartContainer(ctx, &api.PreStartContainerRequest{DevicesIds: ids}); err != nil {
		return fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
	}
	return nil
}
