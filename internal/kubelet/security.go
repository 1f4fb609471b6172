package kubelet

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/image"
)

// effective returns a container's security context, with what it does not set taken from its pod's.
func effective(pod *corev1.Pod, c *corev1.Container) *corev1.SecurityContext {
	sc := &corev1.SecurityContext{}
	if c.SecurityContext != nil {
		sc = c.SecurityContext.DeepCopy()
	}
	if p := pod.Spec.SecurityContext; p != nil {
		sc.SELinuxOptions = cmp.Or(sc.SELinuxOptions, p.SELinuxOptions)
		sc.RunAsUser = cmp.Or(sc.RunAsUser, p.RunAsUser)
		sc.RunAsGroup = cmp.Or(sc.RunAsGroup, p.RunAsGroup)
		sc.RunAsNonRoot = cmp.Or(sc.RunAsNonRoot, p.RunAsNonRoot)
		sc.SeccompProfile = cmp.Or(sc.SeccompProfile, p.SeccompProfile)
		sc.AppArmorProfile = cmp.Or(sc.AppArmorProfile, p.AppArmorProfile)
	}
	return sc
}

// linuxSecurity returns the security context of a container in the runtime's terms.
func (k *Kubelet) linuxSecurity(pod *corev1.Pod, c *corev1.Container, img image.Image) (*runtimeapi.LinuxContainerSecurityContext, error) {
	sc := effective(pod, c)
	if err := verifyNonRoot(pod, c, sc, img); err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		Capabilities: capabilities(sc.Capabilities), Privileged: isTrue(sc.Privileged), ReadonlyRootfs: isTrue(sc.ReadOnlyRootFilesystem),
		NamespaceOptions: namespaces(pod), NoNewPrivs: sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation,
		SelinuxOptions: selinux(sc.SELinuxOptions), RunAsGroup: int64Value(sc.RunAsGroup), RunAsUser: int64Value(sc.RunAsUser),
	}
	if out.RunAsUser == nil {
		out.RunAsUser, out.RunAsUsername = int64Value(img.UID), img.User
		if img.UID == nil && img.User == "" {
			out.RunAsUser = &runtimeapi.Int64Value{}
		}
	}
	if sc.ProcMount == nil || *sc.ProcMount != corev1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths(), readonlyPaths
	}
	var err error
	if out.Seccomp, err = k.seccomp(sc.SeccompProfile); err != nil {
		return nil, err
	}
	if out.Apparmor, err = apparmor(sc.AppArmorProfile); err != nil {
		return nil, err
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(pod)
	return out, nil
}

// groups returns the supplemental groups of a pod's containers, fsGroup included.
func groups(pod *corev1.Pod) (out []int64, policy runtimeapi.SupplementalGroupsPolicy) {
	sc := pod.Spec.SecurityContext
	if sc == nil {
		return nil, policy
	}
	if sc.FSGroup != nil {
		out = append(out, *sc.FSGroup)
	}
	out = append(out, sc.SupplementalGroups...)
	if sc.SupplementalGroupsPolicy != nil && *sc.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		policy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return out, policy
}

// namespaces returns which namespaces the containers of a pod share with each other or with the node.
func namespaces(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if isTrue(pod.Spec.ShareProcessNamespace) {
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	if pod.Spec.HostPID {
		n.Pid = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	return n
}

// verifyNonRoot returns an error for a container with runAsNonRoot that would run as root.
func verifyNonRoot(pod *corev1.Pod, c *corev1.Container, sc *corev1.SecurityContext, img image.Image) error {
	if !isTrue(sc.RunAsNonRoot) {
		return nil
	}
	subject := fmt.Sprintf("(pod: %q, container: %s)", podName(pod), c.Name)
	switch {
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", subject)
	case sc.RunAsUser != nil:
		return nil
	case img.User != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", img.User, subject)
	case img.UID == nil || *img.UID == 0:
		return fmt.Errorf("container has runAsNonRoot and image will run as root %s", subject)
	}
	if errs := validation.IsValidUserID(*img.UID); len(errs) > 0 {
		return fmt.Errorf("container has runAsNonRoot and image has an invalid user id (%d). (Must be 1-(%d)): %s %s", *img.UID, math.MaxInt32, strings.Join(errs, "; "), subject)
	}
	return nil
}

// seccomp returns the seccomp profile of a container: unconfined unless it asks for one.
func (k *Kubelet) seccomp(p *corev1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil || p.Type == corev1.SeccompProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.Type == corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p.LocalhostProfile == nil || *p.LocalhostProfile == "":
		return nil, errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: filepath.Join(k.options.RootDir, "seccomp", *p.LocalhostProfile)}, nil
}

func apparmor(p *corev1.AppArmorProfile) (*runtimeapi.SecurityProfile, error) {
	switch {
	case p == nil:
		return nil, nil
	case p.Type == corev1.AppArmorProfileTypeUnconfined:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}, nil
	case p.Type == corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}, nil
	case p.LocalhostProfile == nil:
		return nil, errors.New("missing localhost apparmor profile name")
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}, nil
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func capabilities(c *corev1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	out := &runtimeapi.Capability{}
	for _, name := range c.Add {
		out.AddCapabilities = append(out.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		out.DropCapabilities = append(out.DropCapabilities, string(name))
	}
	return out
}

func int64Value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func isTrue(b *bool) bool { return b != nil && *b }

// The paths below /proc and /sys that containers cannot read or cannot write, unless their procMount is Unmasked.
var (
	maskedPaths = sync.OnceValue(func() []string {
		paths := []string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
			"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
		throttle, err := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
		if err == nil {
			paths = append(paths, throttle...)
		}
		return paths
	})
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)
