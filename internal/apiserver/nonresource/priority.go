package nonresource

import (
	"cmp"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// Priority says where discovery lists a group version, as the fields groupPriorityMinimum and versionPriority of an APIService do. What has the
// higher priority is listed first.
type Priority struct{ Group, Version int32 }

// customPriority is that of group versions of custom resources.
var customPriority = Priority{1000, 100}

// resourceMetrics is not one of kube-apiserver's own groups; its priority is that of metrics-server's APIService. It comes after all others that have the
// resources pods and nodes.
const resourceMetrics = "metrics.k8s.io"

var resourceMetricsPriority = Priority{100, 100}

// PriorityOf returns the priority of a group version that the server itself serves.
func PriorityOf(gv schema.GroupVersion) Priority {
	if p, ok := builtinPriority(gv); ok {
		return p
	}
	if gv.Group == resourceMetrics {
		return resourceMetricsPriority
	}
	return customPriority
}

// Builtin reports whether a group version is one of Kubernetes' own, and not of custom resources.
func Builtin(gv schema.GroupVersion) bool {
	_, ok := builtinPriority(gv)
	return ok
}

func builtinPriority(gv schema.GroupVersion) (Priority, bool) {
	for _, p := range builtinPriorities {
		if p.group == gv.Group && p.version == gv.Version {
			return p.Priority, true
		}
	}
	return Priority{}, false
}

// builtinPriorities has the group versions that skiff serves.
var builtinPriorities = [...]struct {
	group, version string
	Priority
}{
	{"", "v1", Priority{18000, 1}},
	{"apiregistration.k8s.io", "v1", Priority{20000, 0}},
	{"apps", "v1", Priority{17800, 15}},
	{"events.k8s.io", "v1", Priority{17750, 15}},
	{"authentication.k8s.io", "v1", Priority{17700, 15}},
	{"authorization.k8s.io", "v1", Priority{17600, 15}},
	{"autoscaling", "v1", Priority{17500, 15}},
	{"autoscaling", "v2", Priority{17500, 30}},
	{"batch", "v1", Priority{17400, 15}},
	{"certificates.k8s.io", "v1", Priority{17300, 15}},
	{"networking.k8s.io", "v1", Priority{17200, 15}},
	{"policy", "v1", Priority{17100, 15}},
	{"rbac.authorization.k8s.io", "v1", Priority{17000, 15}},
	{"storage.k8s.io", "v1", Priority{16800, 15}},
	{"admissionregistration.k8s.io", "v1", Priority{16700, 15}},
	{"admissionregistration.k8s.io", "v1alpha1", Priority{16700, 9}},
	{"apiextensions.k8s.io", "v1", Priority{16700, 15}},
	{"scheduling.k8s.io", "v1", Priority{16600, 15}},
	{"coordination.k8s.io", "v1", Priority{16500, 15}},
	{"node.k8s.io", "v1", Priority{16300, 15}},
	{"discovery.k8s.io", "v1", Priority{16200, 15}},
	{"resource.k8s.io", "v1", Priority{16200, 21}},
	{"flowcontrol.apiserver.k8s.io", "v1", Priority{16100, 21}},
	{"storagemigration.k8s.io", "v1", Priority{15800, 15}},
}

// compareVersions orders the versions of a group: the preferred one is first. Of equal priority, v2 is before v1, and v1 before v1beta1.
func compareVersions(a, b *versionPart) int {
	if c := cmp.Compare(b.priority.Version, a.priority.Version); c != 0 {
		return c
	}
	return version.CompareKubeAwareVersionStrings(b.gv.Version, a.gv.Version)
}

// compareServices orders group versions as /apis does, by group priority and then by the name of the APIService, which begins with the version.
// A group is where its first one is.
func compareServices(a, b *versionPart) int {
	return cmp.Or(cmp.Compare(b.priority.Group, a.priority.Group), cmp.Compare(a.gv.Version+"."+a.gv.Group, b.gv.Version+"."+b.gv.Group))
}
