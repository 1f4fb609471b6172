package kubelettest

import (
	"context"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Volumes are fake volumes, which exist only in memory.
type Volumes struct {
	mu   sync.Mutex
	pods map[types.UID]int // how often the volumes of a pod were set up
	err  error
}

// Fail has SetUp fail with err from now on; nil has it succeed again.
func (v *Volumes) Fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err = err
}

// SetUp sets up a pod's volumes.
func (v *Volumes) SetUp(_ context.Context, pod *corev1.Pod) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.err != nil {
		return v.err
	}
	if v.pods == nil {
		v.pods = map[types.UID]int{}
	}
	v.pods[pod.UID]++
	return nil
}

// SetUps returns how often a pod's volumes were set up.
func (v *Volumes) SetUps(uid types.UID) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods[uid]
}

// Mounts returns a mount for each volume mount of the container.
func (v *Volumes) Mounts(_ *corev1.Pod, c *corev1.Container, _ []*runtimeapi.KeyValue) (out []*runtimeapi.Mount, err error) {
	for _, m := range c.VolumeMounts {
		out = append(out, &runtimeapi.Mount{HostPath: "/volumes/" + m.Name, ContainerPath: m.MountPath, Readonly: m.ReadOnly})
	}
	return out, nil
}

// Devices returns none.
func (v *Volumes) Devices(*corev1.Pod, *corev1.Container) ([]*runtimeapi.Device, error) {
	return nil, nil
}

// Path returns where a volume would be.
func (v *Volumes) Path(_ *corev1.Pod, volume string) (string, error) {
	return "/volumes/" + volume, nil
}

// TearDown removes a pod's volumes.
func (v *Volumes) TearDown(_ context.Context, uid types.UID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pods, uid)
	return nil
}

// Left returns the pods that have volumes.
func (v *Volumes) Left() ([]types.UID, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Keys(v.pods)), nil
}

// Cgroups are fake cgroups, which exist only in memory.
type Cgroups struct {
	mu   sync.Mutex
	pods map[types.UID]bool
}

// Setup does nothing.
func (c *Cgroups) Setup() error { return nil }

// Ensure creates a pod's cgroup.
func (c *Cgroups) Ensure(pod *corev1.Pod) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pods == nil {
		c.pods = map[types.UID]bool{}
	}
	c.pods[pod.UID] = true
	return "/kubepods/pod" + string(pod.UID), nil
}

// Remove removes a pod's cgroup.
func (c *Cgroups) Remove(uid types.UID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, uid)
	return nil
}

// Left returns the pods that have a cgroup.
func (c *Cgroups) Left() ([]types.UID, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.pods)), nil
}
