package quantity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/resource"
)

// use is a set of places where a name without a domain may be used.
type use uint8

const (
	anywhere    use = 1 << iota // defined by Kubernetes
	inContainer                 // requests and limits of containers
	inQuota                     // resource quotas
	counted                     // amounts must be integers
)

var known = map[corev1.ResourceName]use{
	corev1.ResourceCPU:              anywhere | inContainer | inQuota,
	corev1.ResourceMemory:           anywhere | inContainer | inQuota,
	corev1.ResourceEphemeralStorage: anywhere | inContainer | inQuota,
	corev1.ResourceStorage:          anywhere,

	corev1.ResourceRequestsCPU:              anywhere | inQuota,
	corev1.ResourceRequestsMemory:           anywhere | inQuota,
	corev1.ResourceRequestsStorage:          anywhere | inQuota,
	corev1.ResourceRequestsEphemeralStorage: anywhere | inQuota,
	corev1.ResourceLimitsCPU:                anywhere | inQuota,
	corev1.ResourceLimitsMemory:             anywhere | inQuota,
	corev1.ResourceLimitsEphemeralStorage:   anywhere | inQuota,

	corev1.ResourcePods:                   anywhere | inQuota | counted,
	corev1.ResourceQuotas:                 anywhere | inQuota | counted,
	corev1.ResourceServices:               anywhere | inQuota | counted,
	corev1.ResourceReplicationControllers: anywhere | inQuota | counted,
	corev1.ResourceSecrets:                anywhere | inQuota | counted,
	corev1.ResourceConfigMaps:             anywhere | inQuota | counted,
	corev1.ResourcePersistentVolumeClaims: anywhere | inQuota | counted,
	corev1.ResourceServicesNodePorts:      anywhere | inQuota | counted,
	corev1.ResourceServicesLoadBalancers:  anywhere | inQuota | counted,
}

// IsHugePage reports whether the name is one of huge pages, such as hugepages-2Mi.
func IsHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsQuotaHugePage reports whether a quota may limit huge pages under this name: hugepages-2Mi or requests.hugepages-2Mi.
func IsQuotaHugePage(name corev1.ResourceName) bool {
	return IsHugePage(name) || strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// IsStandard reports whether Kubernetes itself defines the name.
func IsStandard(name corev1.ResourceName) bool {
	return known[name]&anywhere != 0 || IsQuotaHugePage(name)
}

// IsStandardContainer reports whether containers can request the resource on any node, without a device plugin.
func IsStandardContainer(name corev1.ResourceName) bool {
	return known[name]&inContainer != 0 || IsHugePage(name)
}

// IsStandardQuota reports whether a quota can limit the resource under this unprefixed name.
func IsStandardQuota(name corev1.ResourceName) bool {
	return known[name]&inQuota != 0 || IsQuotaHugePage(name)
}

// IsNative reports whether the name is Kubernetes' own: it has no domain, or one that ends in kubernetes.io.
func IsNative(name corev1.ResourceName) bool {
	return !hasDomain(name) || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtended reports whether the name is an extended resource's, such as example.com/gpu. It must also be valid with the
// prefix "requests.", for quotas.
func IsExtended(name corev1.ResourceName) bool {
	return !IsNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// IsInteger reports whether amounts of the resource must be integers.
func IsInteger(name corev1.ResourceName) bool { return known[name]&counted != 0 || IsExtended(name) }

// IsOvercommitAllowed reports whether limits may exceed requests.
func IsOvercommitAllowed(name corev1.ResourceName) bool { return IsNative(name) && !IsHugePage(name) }

// Name checks a resource name of any use: standard, or qualified by a domain.
func Name(name corev1.ResourceName, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if known[name] != 0 {
		return nil
	}
	for _, msg := range validation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, name, msg))
	}
	if len(errs) == 0 && !hasDomain(name) && !IsStandard(name) {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource type or fully qualified"))
	}
	return errs
}

// ContainerName checks the name of a resource that a container requests.
func ContainerName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := Name(name, path)
	switch {
	case !hasDomain(name):
		if !IsStandardContainer(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !IsNative(name) && !IsExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// PodLevelName checks the name of a resource that a pod requests for its containers together.
func PodLevelName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := Name(name, path)
	if len(errs) == 0 && !resource.IsSupportedPodLevelResource(name) {
		supported := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceHugePagesPrefix, corev1.ResourceMemory}
		errs = append(errs, field.NotSupported(path, name, supported))
	}
	return errs
}

// QuotaName checks the name of a resource that a quota limits.
func QuotaName(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := Name(name, path)
	if !hasDomain(name) && !IsStandardQuota(name) {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for quota"))
	}
	return errs
}

func hasDomain(name corev1.ResourceName) bool { return strings.Contains(string(name), "/") }
