package pod

import (
	_ "crypto/sha256" // digests in image references
	_ "crypto/sha512"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog/quantity"
	"skiff/internal/catalog/volume"
)

// defaultPod defaults a pod. A pod has more defaults than a template: the first ones here would
// otherwise appear in every stored template, and make each look changed.
func defaultPod(p *corev1.Pod) {
	spec := &p.Spec
	if grace := spec.TerminationGracePeriodSeconds; grace != nil && *grace < 0 {
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	fill(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	DefaultSpec(spec)
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			requestLimits(&list[i].Resources)
			if spec.HostNetwork {
				useHostPorts(list[i].Ports)
			}
		}
	}
	defaultStatus(&p.Status)
}

// DefaultTemplate defaults a pod template.
func DefaultTemplate(t *corev1.PodTemplateSpec) { DefaultSpec(&t.Spec) }

// DefaultSpec defaults the spec of a pod or of a pod template.
func DefaultSpec(s *corev1.PodSpec) {
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	fillString(&s.DNSPolicy, corev1.DNSClusterFirst)
	fillString(&s.RestartPolicy, corev1.RestartPolicyAlways)
	fillString(&s.SchedulerName, corev1.DefaultSchedulerName)
	fill(&s.SecurityContext, corev1.PodSecurityContext{})
	fill(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	for i := range s.Volumes {
		volume.Default(&s.Volumes[i])
	}
	for _, c := range containers(s) {
		defaultContainer(c)
	}
	quantity.RoundUp(s.Overhead)
	roundUp(s.Resources)
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" {
		c.ImagePullPolicy = pullPolicy(c.Image)
	}
	fillString(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fillString(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fillString(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultEnvSource(from)
		}
	}
	roundUp(&c.Resources)
	for _, probe := range [...]*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe != nil {
			defaultProbe(probe)
		}
	}
	if c.Lifecycle != nil {
		for _, handler := range [...]*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if handler != nil {
				defaultHTTPGet(handler.HTTPGet)
			}
		}
	}
}

func defaultEnvSource(from *corev1.EnvVarSource) {
	if from.FieldRef != nil {
		fillString(&from.FieldRef.APIVersion, "v1")
	}
	if from.FileKeyRef != nil {
		fill(&from.FileKeyRef.Optional, false)
	}
}

func defaultProbe(p *corev1.Probe) {
	fillNumber(&p.TimeoutSeconds, 1)
	fillNumber(&p.PeriodSeconds, 10)
	fillNumber(&p.SuccessThreshold, 1)
	fillNumber(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		fill(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		fillString(&h.Path, "/")
		fillString(&h.Scheme, corev1.URISchemeHTTP)
	}
}

// requestLimits sets missing requests to the limits.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, requested := r.Requests[name]; !requested {
			if r.Requests == nil {
				r.Requests = make(corev1.ResourceList, len(r.Limits))
			}
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// useHostPorts sets the host ports of a container in the host's network to its ports.
func useHostPorts(ports []corev1.ContainerPort) {
	for i := range ports {
		fillNumber(&ports[i].HostPort, ports[i].ContainerPort)
	}
}

func defaultStatus(s *corev1.PodStatus) {
	switch {
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
	for _, list := range [...][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for i := range list {
			quantity.RoundUp(list[i].AllocatedResources)
			roundUp(list[i].Resources)
		}
	}
	quantity.RoundUp(s.AllocatedResources)
	roundUp(s.Resources)
}

func roundUp(r *corev1.ResourceRequirements) {
	if r != nil {
		quantity.RoundUp(r.Limits)
		quantity.RoundUp(r.Requests)
	}
}

// pullPolicy returns Always for images whose tag is latest, explicitly or by default, because that tag is expected to move.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, digested := strings.Cut(image, "@")
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, tag, tagged := strings.Cut(name, ":")
	moves := tag == "latest" || !tagged && !digested
	if !moves {
		return corev1.PullIfNotPresent // without the cost of parsing
	}
	if _, err := reference.ParseNormalizedNamed(image); err != nil {
		return corev1.PullIfNotPresent
	}
	return corev1.PullAlways
}

func fill[T any](field **T, value T) {
	if *field == nil {
		v := value // so that only this branch allocates
		*field = &v
	}
}

func fillString[S ~string](field *S, value S) {
	if *field == "" {
		*field = value
	}
}

func fillNumber(field *int32, value int32) {
	if *field == 0 {
		*field = value
	}
}
