package quota

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Used returns what the objects of a quota's namespace use of what its spec limits. resources are all resources of the cluster; list returns
// the objects of one in the namespace and is called only for resources that the quota limits. Names that depend on a failed list are omitted.
func (e *Evaluators) Used(q *corev1.ResourceQuota, resources []schema.GroupResource,
	list func(schema.GroupResource) ([]Object, error)) (corev1.ResourceList, error) {
	used, failed := corev1.ResourceList{}, map[corev1.ResourceName]bool{}
	var errs []error
	for _, resource := range resources {
		evaluator := e.For(resource)
		names := Limited(evaluator, q.Spec.Hard)
		if len(names) == 0 || Ignored(resource) {
			continue
		}
		objects, err := list(resource)
		if err != nil {
			errs = append(errs, fmt.Errorf("failed to list content: %v", err))
			for _, name := range names {
				failed[name] = true
			}
			continue
		}
		used = Add(used, total(evaluator, q, names, objects))
	}
	for name := range used {
		if failed[name] {
			delete(used, name)
		}
	}
	return used, utilerrors.NewAggregate(errs)
}

// total returns what the objects of one resource use of the names.
func total(e Evaluator, q *corev1.ResourceQuota, names []corev1.ResourceName, objects []Object) corev1.ResourceList {
	sum := corev1.ResourceList{}
	for _, name := range names {
		sum[name] = resource.Quantity{Format: resource.DecimalSI}
	}
	for _, obj := range objects {
		if in, err := InScopes(e, &q.Spec, obj); err != nil || !in {
			continue
		}
		usage := e.Usage(obj)
		for _, name := range names {
			if value, ok := usage[name]; ok {
				t := sum[name]
				t.Add(value)
				sum[name] = t
			}
		}
	}
	return sum
}

// Limited returns the names in hard that objects of the evaluator's resource count against, in random order.
func Limited(e Evaluator, hard corev1.ResourceList) []corev1.ResourceName {
	var names []corev1.ResourceName
	for name := range hard {
		if e.Counts(name) {
			names = append(names, name)
		}
	}
	return names
}
