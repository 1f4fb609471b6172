package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/environment"
	"skiff/internal/kubelet/image"
)

// Reasons of a waiting container state.
const (
	errCreateContainerConfig = "CreateContainerConfigError"
	errCreateContainer       = "CreateContainerError"
	errRunContainer          = "RunContainerError"
	errPostStartHook         = "PostStartHookError"
	errCrashLoopBackOff      = "CrashLoopBackOff"
)

// containerConfig returns the configuration that the runtime creates a container with.
func (k *Kubelet) containerConfig(ctx context.Context, pod *corev1.Pod, s starting, restarts int, img image.Image, podIPs []string, target string) (*runtimeapi.ContainerConfig, error) {
	c := s.Container
	env, err := environment.Variables(ctx, environment.Input{Pod: pod, Container: c, Source: k.objects, Services: k.services(pod.Namespace), Node: k.environmentNode(),
		PodIPs: podIPs, VolumePath: k.volumePath(pod)})
	if err != nil {
		return nil, err
	}
	mounts, err := k.mounts(pod, c, env, podIPs)
	if err != nil {
		return nil, err
	}
	devices, err := k.options.Volumes.Devices(pod, c)
	if err != nil {
		return nil, err
	}
	extra, err := k.pluginDevices(ctx, pod, c)
	if err != nil {
		return nil, err
	}
	security, err := k.linuxSecurity(pod, c, img)
	if err != nil {
		return nil, err
	}
	if target != "" && security.NamespaceOptions.Pid == runtimeapi.NamespaceMode_CONTAINER {
		security.NamespaceOptions.Pid, security.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, target
	}
	if err := os.MkdirAll(filepath.Join(k.logs.PodDir(pod), c.Name), 0o755); err != nil {
		return nil, fmt.Errorf("create container log directory for container %s failed: %w", c.Name, err)
	}
	command, args := environment.Command(c, env)
	resources := k.linuxResources(pod, c)
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(restarts)},
		Image:    &runtimeapi.ImageSpec{Image: img.Ref, UserSpecifiedImage: c.Image},
		Command:  command, Args: args, WorkingDir: c.WorkingDir, Envs: env, Mounts: mounts, Devices: devices,
		Labels: cri.ContainerLabels(pod, c.Name), Annotations: cri.ContainerAnnotations(pod, c, restarts, resources),
		LogPath: filepath.Join(c.Name, strconv.Itoa(restarts)+".log"), Stdin: c.Stdin, StdinOnce: c.StdinOnce, Tty: c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{Resources: resources, SecurityContext: security},
	}
	extra.addTo(config)
	return config, nil
}

// mounts returns the mounts of a container: volumes, the hosts file, and the termination message file.
func (k *Kubelet) mounts(pod *corev1.Pod, c *corev1.Container, env []*runtimeapi.KeyValue, podIPs []string) ([]*runtimeapi.Mount, error) {
	mounts, err := k.options.Volumes.Mounts(pod, c, env)
	if err != nil {
		return nil, err
	}
	if environment.MountsHosts(pod, c, podIPs) {
		path, err := k.writeHosts(pod, podIPs)
		if err != nil {
			return nil, err
		}
		readonly := c.SecurityContext != nil && isTrue(c.SecurityContext.ReadOnlyRootFilesystem)
		mounts = append(mounts, &runtimeapi.Mount{HostPath: path, ContainerPath: environment.HostsPath, Readonly: readonly, SelinuxRelabel: true})
	}
	if c.TerminationMessagePath == "" {
		return mounts, nil
	}
	path, err := k.makeTerminationMessageFile(pod, c.Name)
	if err != nil {
		return nil, err
	}
	return append(mounts, &runtimeapi.Mount{HostPath: path, ContainerPath: c.TerminationMessagePath}), nil
}

// podDir returns the kubelet's directory of a pod.
func (k *Kubelet) podDir(pod *corev1.Pod) string {
	return filepath.Join(k.options.RootDir, "pods", string(pod.UID))
}

// writeHosts writes a pod's hosts file if it differs, and returns its path.
func (k *Kubelet) writeHosts(pod *corev1.Pod, podIPs []string) (string, error) {
	hostname, domain, err := environment.Hostname(pod, k.options.ClusterDomain)
	if err != nil {
		return "", err
	}
	var node []byte
	if pod.Spec.HostNetwork {
		if node, err = os.ReadFile(environment.HostsPath); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	path := filepath.Join(k.podDir(pod), "etc-hosts")
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	content := environment.Hosts(pod, node, podIPs, hostname, domain)
	// A container may have made its hosts file as large as the disk, so a file of another size is not read.
	if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && info.Size() == int64(len(content)) {
		if now, err := os.ReadFile(path); err == nil && string(now) == string(content) {
			return path, nil
		}
	}
	// The file is written in place: running containers have it mounted.
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o644)
}

// makeTerminationMessageFile creates the termination message file of one run of a container, and returns its path.
func (k *Kubelet) makeTerminationMessageFile(pod *corev1.Pod, name string) (string, error) {
	dir := filepath.Join(k.podDir(pod), cri.TerminationMessageDir, name)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", err
	}
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprintf("%08x", rand.Uint32())), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	return f.Name(), errors.Join(f.Chmod(0o666), f.Close()) // whatever the umask
}
