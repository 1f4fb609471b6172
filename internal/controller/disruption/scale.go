package disruption

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/kinds"
)

// parallelReads is how many scales are read at a time for one budget.
const parallelReads = 8

// scaleQuery is a question to the API for the scale of a controller.
type scaleQuery struct {
	ref       metav1.OwnerReference
	namespace string

	found *scale // nil if there is no such controller
	err   error
}

func (q *scaleQuery) String() string {
	return fmt.Sprintf("read scale of %s %s/%s", q.ref.Kind, q.namespace, q.ref.Name)
}

// scaleReader reads the scale subresource of controllers of any kind.
type scaleReader struct{ resources kinds.Finder }

// action returns the action that answers a query. It does not fail: the query holds the error.
func (r *scaleReader) action(q *scaleQuery) controller.Action {
	return controller.Call(q.String(), func(ctx context.Context, c *client.Client) error {
		q.found, q.err = r.read(ctx, c, q)
		return nil
	})
}

func (r *scaleReader) read(ctx context.Context, c *client.Client, q *scaleQuery) (*scale, error) {
	gv, err := schema.ParseGroupVersion(q.ref.APIVersion)
	if err != nil {
		return nil, err
	}
	kind := gv.WithKind(q.ref.Kind)
	resource, known, err := r.resources.Find(ctx, c, kind)
	if err != nil {
		return nil, err
	}
	if !isScale(resource.Scale) {
		r.resources.Forget(kind) // it may become so
		return nil, fmt.Errorf("%v does not implement the scale subresource", resource.GroupResource())
	}
	found, err := readScale(ctx, c, resource, q)
	if !apierrors.IsNotFound(err) {
		return found, err
	}
	if known { // if the resource was found a while ago, it may have gone, too
		r.resources.Forget(kind)
		if _, _, err := r.resources.Find(ctx, c, kind); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// isScale reports whether the Scale of a version is known.
func isScale(gv schema.GroupVersion) bool {
	switch gv.String() {
	case "autoscaling/v1", "extensions/v1beta1", "apps/v1beta1", "apps/v1beta2":
		return true
	}
	return false
}

// readScale reads the scale of an object. All versions of Scale have its uid and its replicas in the same place.
func readScale(ctx context.Context, c *client.Client, resource kinds.Resource, q *scaleQuery) (*scale, error) {
	var s autoscalingv1.Scale
	if err := kinds.Get(ctx, c, &s, nil, resource.Path(q.namespace, q.ref.Name, "scale")...); err != nil {
		return nil, err
	}
	return &scale{s.UID, s.Spec.Replicas}, nil
}
