package disruption

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// scale is how many pods a controller wants.
type scale struct {
	uid      types.UID
	replicas int32
}

// expectation is how many pods a budget's pods should be, and how many of them healthy.
type expectation struct {
	pods, healthy int32
	unmanaged     bool // some pods have no controller, so that they count for nothing
}

// expect returns what a budget asks of its pods.
func (o *observed) expect() (expectation, error) {
	spec := &o.budget.Spec
	switch {
	case spec.MaxUnavailable != nil:
		e, err := o.expectedPods()
		if err != nil {
			return e, err
		}
		unavailable, err := intstr.GetScaledValueFromIntOrPercent(spec.MaxUnavailable, int(e.pods), true)
		e.healthy = max(e.pods-int32(unavailable), 0)
		return e, err
	case spec.MinAvailable == nil:
		return expectation{}, nil
	case spec.MinAvailable.Type == intstr.Int:
		return expectation{pods: int32(len(o.pods)), healthy: spec.MinAvailable.IntVal}, nil
	}
	e, err := o.expectedPods()
	if err != nil {
		return e, err
	}
	available, err := intstr.GetScaledValueFromIntOrPercent(spec.MinAvailable, int(e.pods), true)
	e.healthy = int32(available)
	return e, err
}

// asksForScale reports whether what a budget asks of its pods depends on how many their controllers want.
func (o *observed) asksForScale() bool {
	spec := &o.budget.Spec
	return spec.MaxUnavailable != nil || spec.MinAvailable != nil && spec.MinAvailable.Type == intstr.String
}

// expectedPods returns the sum of the pods that the controllers of a budget's pods want.
func (o *observed) expectedPods() (e expectation, err error) {
	counted := map[types.UID]bool{}
	for _, pod := range o.pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil {
			e.unmanaged = true
			continue
		}
		if counted[ref.UID] {
			continue
		}
		found, err := o.scaleOf(ref, pod.Namespace)
		if err != nil {
			return e, err
		}
		if found == nil {
			return e, fmt.Errorf("found no controllers for pod %q", pod.Name)
		}
		if !counted[found.uid] {
			counted[found.uid] = true
			e.pods += found.replicas
		}
	}
	return e, nil
}

// scaleOf returns the scale of a controller, from the caches or as it was read from the API; nil if there is no such controller.
func (o *observed) scaleOf(ref *metav1.OwnerReference, namespace string) (*scale, error) {
	found, err := o.cached(ref, namespace)
	if found != nil || err != nil {
		return found, err
	}
	q := o.queries[ref.UID]
	if q == nil || q.err == nil && q.found != nil && q.found.uid != ref.UID {
		return nil, nil
	}
	return q.found, q.err
}

// unknownScales returns queries for the scales that are not in the caches, one for each controller.
func (o *observed) unknownScales() (queries []*scaleQuery) {
	if o.selectorErr != nil || !o.asksForScale() {
		return nil
	}
	for _, pod := range o.pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		if ref == nil || o.queries[ref.UID] != nil {
			continue
		}
		if found, err := o.cached(ref, pod.Namespace); found == nil && err == nil {
			q := &scaleQuery{ref: *ref, namespace: pod.Namespace}
			o.queries[ref.UID] = q
			queries = append(queries, q)
		}
	}
	return queries
}

// cachedScale returns the scale of a controller of a kind that there are informers for: of the Deployment, if it is the ReplicaSet of one. It is nil if
// the caches do not have it.
func (l *loop) cachedScale(ref *metav1.OwnerReference, namespace string) (*scale, error) {
	kind, err := kindOf(ref)
	if err != nil {
		return nil, err
	}
	switch kind {
	case schema.GroupKind{Kind: "ReplicationController"}:
		rc, err := l.controllers.ReplicationControllers(namespace).Get(ref.Name)
		if err != nil || rc.UID != ref.UID {
			return nil, nil
		}
		return &scale{rc.UID, ptr.Deref(rc.Spec.Replicas, 1)}, nil
	case schema.GroupKind{Group: "apps", Kind: "StatefulSet"}:
		set, err := l.statefulSets.StatefulSets(namespace).Get(ref.Name)
		if err != nil || set.UID != ref.UID {
			return nil, nil
		}
		return &scale{set.UID, ptr.Deref(set.Spec.Replicas, 1)}, nil
	case schema.GroupKind{Group: "apps", Kind: "ReplicaSet"}, schema.GroupKind{Group: "extensions", Kind: "ReplicaSet"}:
		rs, err := l.sets.ReplicaSets(namespace).Get(ref.Name)
		if err != nil || rs.UID != ref.UID {
			return nil, nil
		}
		return l.scaleOfReplicaSet(rs)
	}
	return nil, nil
}

// scaleOfReplicaSet returns the scale of a ReplicaSet, or of its Deployment.
func (l *loop) scaleOfReplicaSet(rs *appsv1.ReplicaSet) (*scale, error) {
	owner := metav1.GetControllerOfNoCopy(rs)
	if owner == nil || owner.Kind != "Deployment" {
		return &scale{rs.UID, ptr.Deref(rs.Spec.Replicas, 1)}, nil
	}
	kind, err := kindOf(owner)
	if err != nil || kind.Group != "apps" && kind.Group != "extensions" {
		return nil, err
	}
	deployment, err := l.deployments.Deployments(rs.Namespace).Get(owner.Name)
	if err != nil || deployment.UID != owner.UID {
		return nil, nil
	}
	return &scale{deployment.UID, ptr.Deref(deployment.Spec.Replicas, 1)}, nil
}

func kindOf(ref *metav1.OwnerReference) (schema.GroupKind, error) {
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return gv.WithKind(ref.Kind).GroupKind(), err
}
