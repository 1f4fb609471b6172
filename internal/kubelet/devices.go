package kubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// allocateDevices gives devices of plugins to a pod that is admitted, and returns why it cannot have them.
func (k *Kubelet) allocateDevices(pod *corev1.Pod) *rejection {
	if err := k.devices.Allocate(k.runCtx, pod); err != nil {
		return &rejection{"UnexpectedAdmissionError", fmt.Sprintf("Allocate failed due to %v, which is unexpected", err)}
	}
	return nil
}

// pluginDevices is what a container gets with the devices of plugins and of DRA drivers.
type pluginDevices struct {
	env         map[string]string
	annotations map[string]string
	mounts      []*runtimeapi.Mount
	devices     []*runtimeapi.Device
	cdi         []*runtimeapi.CDIDevice
}

// pluginDevices returns what a container gets with the devices of plugins and of DRA drivers.
func (k *Kubelet) pluginDevices(ctx context.Context, pod *corev1.Pod, c *corev1.Container) (*pluginDevices, error) {
	d := &pluginDevices{env: map[string]string{}, annotations: map[string]string{}}
	names, err := k.dra.CDIDevices(pod, c)
	if err != nil {
		return nil, err
	}
	list, err := k.devices.Of(ctx, pod, c.Name)
	if err != nil {
		return nil, err
	}
	for _, r := range list {
		maps.Copy(d.env, r.Envs)
		maps.Copy(d.annotations, r.Annotations)
		for _, m := range r.Mounts {
			d.mounts = append(d.mounts, &runtimeapi.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Readonly: m.ReadOnly})
		}
		for _, s := range r.Devices {
			d.devices = append(d.devices, &runtimeapi.Device{HostPath: s.HostPath, ContainerPath: s.ContainerPath, Permissions: s.Permissions})
		}
		for _, s := range r.CdiDevices {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		d.cdi = append(d.cdi, &runtimeapi.CDIDevice{Name: name})
	}
	return d, nil
}

// addTo adds the devices to the configuration of a container. Variables of the container itself come after those of the devices, so that they win.
func (d *pluginDevices) addTo(config *runtimeapi.ContainerConfig) {
	var env []*runtimeapi.KeyValue
	for _, name := range slices.Sorted(maps.Keys(d.env)) {
		env = append(env, &runtimeapi.KeyValue{Key: name, Value: []byte(d.env[name])})
	}
	config.Envs = append(env, config.Envs...)
	for name, value := range d.annotations {
		if _, taken := config.Annotations[name]; !taken {
			config.Annotations[name] = value
		}
	}
	config.Mounts = append(config.Mounts, d.mounts...)
	config.Devices = append(config.Devices, d.devices...)
	config.CDIDevices = d.cdi
}
