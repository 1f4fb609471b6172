package pod

import (
	corev1 "k8s.io/api/core/v1"
)

// formerInitContainerAnnotations held what is now spec.initContainers. They have been ignored since v1.8.
var formerInitContainerAnnotations = [...]string{
	"pod.beta.kubernetes.io/init-containers",
	"pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses",
	"pod.alpha.kubernetes.io/init-container-statuses",
}

// PrepareTemplate clears the fields of features that are off by default. Resources that embed a template must
// call it on create and on update.
func PrepareTemplate(t *corev1.PodTemplateSpec) { dropDisabled(&t.Spec, t.Annotations) }

// dropDisabled clears fields of features that are off by default. It writes only where there is something to
// clear, because parts of the spec may be shared with the stored object.
func dropDisabled(spec *corev1.PodSpec, annotations map[string]string) {
	spec.SchedulingGroup = nil
	spec.EvictionResponders = nil
	for i := range spec.Volumes {
		dropDisabledFromVolume(&spec.Volumes[i])
	}
	for _, c := range containers(spec) {
		dropDisabledFromContainer(c)
	}
	dropFormerAnnotations(annotations)
}

func dropFormerAnnotations(annotations map[string]string) {
	for _, key := range formerInitContainerAnnotations {
		delete(annotations, key)
	}
}

func dropDisabledFromContainer(c *corev1.Container) {
	for i := range c.VolumeMounts {
		drop(&c.VolumeMounts[i].BindMountOptions)
	}
	for _, probe := range [...]*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		if probe.GRPC != nil && probe.GRPC.Mode != nil {
			probe.GRPC.Mode = nil
		}
		dropHTTPProtocol(probe.HTTPGet)
	}
	if c.Lifecycle == nil {
		return
	}
	for _, handler := range [...]*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if handler != nil {
			dropHTTPProtocol(handler.HTTPGet)
		}
	}
	if c.Lifecycle.StopSignal != nil {
		c.Lifecycle.StopSignal = nil
		if *c.Lifecycle == (corev1.Lifecycle{}) {
			c.Lifecycle = nil
		}
	}
}

func dropHTTPProtocol(h *corev1.HTTPGetAction) {
	if h != nil && h.Protocol != nil {
		h.Protocol = nil
	}
}

// dropDisabledFromVolume clears modes of empty directories and the owners of files that are written into volumes.
func dropDisabledFromVolume(v *corev1.Volume) {
	if v.EmptyDir != nil {
		dropPointer(&v.EmptyDir.Mode)
	}
	switch {
	case v.Secret != nil:
		dropPointer(&v.Secret.DefaultUser)
		dropKeyUsers(v.Secret.Items)
	case v.ConfigMap != nil:
		dropPointer(&v.ConfigMap.DefaultUser)
		dropKeyUsers(v.ConfigMap.Items)
	case v.DownwardAPI != nil:
		dropPointer(&v.DownwardAPI.DefaultUser)
		dropFileUsers(v.DownwardAPI.Items)
	case v.Projected != nil:
		dropPointer(&v.Projected.DefaultUser)
		for i := range v.Projected.Sources {
			dropProjectionUsers(&v.Projected.Sources[i])
		}
	}
}

func dropProjectionUsers(s *corev1.VolumeProjection) {
	switch {
	case s.Secret != nil:
		dropKeyUsers(s.Secret.Items)
	case s.ConfigMap != nil:
		dropKeyUsers(s.ConfigMap.Items)
	case s.DownwardAPI != nil:
		dropFileUsers(s.DownwardAPI.Items)
	case s.ServiceAccountToken != nil:
		dropPointer(&s.ServiceAccountToken.User)
	case s.ClusterTrustBundle != nil:
		dropPointer(&s.ClusterTrustBundle.User)
	case s.PodCertificate != nil:
		dropPointer(&s.PodCertificate.User)
	}
}

func dropKeyUsers(items []corev1.KeyToPath) {
	for i := range items {
		dropPointer(&items[i].User)
	}
}

func dropFileUsers(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		dropPointer(&items[i].User)
	}
}

// dropDisabledStatus clears what nodes cannot report by default.
func dropDisabledStatus(s *corev1.PodStatus) {
	s.VolumeHealth = nil
	s.NodeAllocatableResourceClaimStatuses = nil
	for _, list := range [...][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			for j := range list[i].VolumeMounts {
				dropPointer(&list[i].VolumeMounts[j].VolumeStatus)
			}
		}
	}
}

func dropPointer[T any](p **T) {
	if *p != nil {
		*p = nil
	}
}

func drop[T any](list *[]T) {
	if *list != nil {
		*list = nil
	}
}
