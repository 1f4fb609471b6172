package kubelet

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/environment"
)

// podName returns a pod's name as Events and messages have it.
func podName(pod *corev1.Pod) string {
	return fmt.Sprintf("%s_%s(%s)", pod.Name, pod.Namespace, pod.UID)
}

// sandboxConfig returns the configuration that the runtime creates a sandbox with.
func (k *Kubelet) sandboxConfig(pod *corev1.Pod, attempt uint32, parent string) (*runtimeapi.PodSandboxConfig, error) {
	if users := pod.Spec.HostUsers; users != nil && !*users {
		return nil, errors.New("this node has no user namespaces for pods: hostUsers must be true")
	}
	hostname, domain, err := environment.Hostname(pod, k.options.ClusterDomain)
	if err != nil {
		return nil, err
	}
	if hostname, err = environment.KernelHostname(pod, hostname, domain); err != nil {
		return nil, err
	}
	dns, warnings := k.resolver().DNS(pod)
	for _, w := range warnings {
		k.recorder.Event(pod, corev1.EventTypeWarning, w.Reason, w.Message)
	}
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		Labels:   cri.PodLabels(pod), Annotations: pod.Annotations, Hostname: hostname, DnsConfig: dns, LogDirectory: k.logs.PodDir(pod),
		PortMappings: portMappings(pod),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: parent, SecurityContext: k.sandboxSecurity(pod), Sysctls: sysctls(pod)},
	}
	config.Linux.Resources, config.Linux.Overhead = sandboxResources(pod)
	return config, nil
}

// portMappings returns the ports of a pod's containers.
func portMappings(pod *corev1.Pod) (out []*runtimeapi.PortMapping) {
	add := func(list []corev1.Container) {
		for i := range list {
			for _, p := range list[i].Ports {
				out = append(out, &runtimeapi.PortMapping{Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP})
			}
		}
	}
	add(pod.Spec.Containers)
	return out
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

// sandboxSecurity returns the security context of a pod's pause container.
func (k *Kubelet) sandboxSecurity(pod *corev1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(pod), Privileged: anyPrivileged(pod),
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	if file := k.options.SandboxSeccomp; file != "" {
		out.Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: file}
	}
	if sc := pod.Spec.SecurityContext; sc != nil {
		out.RunAsUser, out.RunAsGroup, out.SelinuxOptions = int64Value(sc.RunAsUser), int64Value(sc.RunAsGroup), selinux(sc.SELinuxOptions)
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(pod)
	return out
}

func anyPrivileged(pod *corev1.Pod) bool {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if sc := list[i].SecurityContext; sc != nil && isTrue(sc.Privileged) {
				return true
			}
		}
	}
	return false
}

// sysctls returns a pod's sysctls, with dots as separators: runtimes know no other form.
func sysctls(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	if sc := pod.Spec.SecurityContext; sc != nil {
		for _, s := range sc.Sysctls {
			name := s.Name
			if i := strings.IndexAny(name, "./"); i >= 0 && name[i] == '/' {
				name = strings.NewReplacer("/", ".", ".", "/").Replace(name)
			}
			out[name] = s.Value
		}
	}
	return out
}
