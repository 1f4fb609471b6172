package pod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// claimPrefix is the prefix of the name of a claim where a resource name would be possible too.
const claimPrefix = "claim:"

var healths = []corev1.ResourceHealthStatus{corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusUnknown}

// claimStatuses validates the names of the claims that were created for those of the pod.
func claimStatuses(p *check.Part, list []corev1.PodResourceClaimStatus, claims []corev1.PodResourceClaim) {
	for i, s := range list {
		at := p.Item("resourceClaimStatuses", i)
		if !slices.ContainsFunc(claims, func(c corev1.PodResourceClaim) bool { return c.Name == s.Name }) {
			at.Invalid("name", s.Name, "must match the name of an entry in `spec.resourceClaims`")
		}
		if slices.ContainsFunc(list[:i], func(b corev1.PodResourceClaimStatus) bool { return b.Name == s.Name }) {
			at.Add(field.Duplicate(at.Path("name"), s.Name))
		}
		if s.ResourceClaimName != nil {
			for _, msg := range validation.NameIsDNSSubdomain(*s.ResourceClaimName, false) {
				at.Invalid("resourceClaimName", s.ResourceClaimName, msg)
			}
		}
	}
}

// extendedClaimStatus validates the status of the claim that was created for the extended resources of a pod's containers.
func extendedClaimStatus(p *check.Part, s *corev1.PodExtendedResourceClaimStatus, spec *corev1.PodSpec) {
	p.Present("requestMappings", len(s.RequestMappings) > 0, "at least one request mapping is required")
	for i, m := range s.RequestMappings {
		at := p.Item("requestMappings", i)
		if c := containerNamed(spec, m.ContainerName); c == nil {
			at.Invalid("containerName", m.ContainerName, "must match the name of an entry in spec.initContainers.name or spec.containers.name")
		} else if _, found := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]; !found {
			at.Invalid("resourceName", m.ResourceName, "must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests")
		}
		p.Format("requestName", m.RequestName, utilvalidation.IsDNS1123Label)
		if slices.Contains(s.RequestMappings[:i], m) {
			at.Add(field.Duplicate(at.Path("containerName"), m.ContainerName))
			at.Add(field.Duplicate(at.Path("resourceName"), m.ResourceName))
			at.Add(field.Duplicate(at.Path("requestName"), m.RequestName))
		}
	}
	if s.ResourceClaimName == "" {
		p.Required("resourceClaimName", "")
	} else {
		formatName(p, "resourceClaimName", s.ResourceClaimName, validation.NameIsDNSSubdomain)
	}
}

// containerNamed returns the container or init container of a name; containers come first.
func containerNamed(spec *corev1.PodSpec, name string) *corev1.Container {
	for _, list := range [...][]corev1.Container{spec.Containers, spec.InitContainers} {
		if i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
			return &list[i]
		}
	}
	return nil
}

// allocatedResources validates the health of the devices that were allocated to containers.
func allocatedResources(p *check.Part, list statusList, pod *corev1.Pod) {
	containers := map[string][]corev1.Container{"containerStatuses": pod.Spec.Containers, "initContainerStatuses": pod.Spec.InitContainers}[list.name]
	for i := range list.items {
		s := &list.items[i]
		if len(s.AllocatedResourcesStatus) == 0 {
			continue
		}
		if list.name == "ephemeralContainerStatuses" {
			p.Item(list.name, i).Forbidden("allocatedResourcesStatus", "must not be specified in container status")
			continue
		}
		for j := range s.AllocatedResourcesStatus {
			r, at := &s.AllocatedResourcesStatus[j], p.Item(list.name, i).Item("allocatedResourcesStatus", j)
			if c := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == s.Name }); c >= 0 {
				allocatedName(at, r.Name, &containers[c], pod.Status.ExtendedResourceClaimStatus)
			}
			for k := range r.Resources {
				resourceHealth(at.Item("resources", k), r.Resources, k)
			}
		}
	}
}

func allocatedName(p *check.Part, name corev1.ResourceName, c *corev1.Container, extended *corev1.PodExtendedResourceClaimStatus) {
	claim, isClaim := strings.CutPrefix(string(name), claimPrefix)
	if !isClaim {
		if _, found := c.Resources.Requests[name]; !found {
			p.Invalid("name", name, "must match one of the container's resource requests")
		}
		return
	}
	for _, containerClaim := range c.Resources.Claims {
		if claim == containerClaim.Name && containerClaim.Request == "" || claim == containerClaim.Name+"/"+containerClaim.Request && containerClaim.Request != "" {
			return
		}
	}
	if !extendedClaim(claim, c, extended) {
		p.Invalid("name", name, "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty")
	}
}

// extendedClaim reports whether a claim and request were created for an extended resource of the container.
func extendedClaim(claim string, c *corev1.Container, s *corev1.PodExtendedResourceClaimStatus) bool {
	name, request, _ := strings.Cut(claim, "/")
	if s == nil || request == "" || name == "" || name != s.ResourceClaimName {
		return false
	}
	return slices.ContainsFunc(s.RequestMappings, func(m corev1.ContainerExtendedResourceRequest) bool {
		q := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
		return m.ContainerName == c.Name && m.RequestName == request && !q.IsZero()
	})
}

func resourceHealth(p *check.Part, list []corev1.ResourceHealth, i int) {
	r := &list[i]
	check.OneOf(p, "health", r.Health, healths...)
	if r.Message != nil {
		if *r.Message == "" {
			p.Required("message", "must be non-empty if specified")
		} else if len(*r.Message) > corev1.ResourceHealthMessageMaxLength {
			p.Add(field.TooLong(p.Path("message"), *r.Message, corev1.ResourceHealthMessageMaxLength))
		}
	}
	if slices.ContainsFunc(list[:i], func(b corev1.ResourceHealth) bool { return b.ResourceID == r.ResourceID }) {
		p.Add(field.Duplicate(p.Path("resourceID"), r.ResourceID))
	}
}
