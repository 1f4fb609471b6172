package podautoscaler

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/kinds"
)

// scaleQuery is a question to the API for the scale of a target, or a change of it.
type scaleQuery struct {
	namespace string
	target    autoscalingv2.CrossVersionObjectReference

	resource kinds.Resource
	found    *autoscalingv1.Scale
	err      error
}

func (q *scaleQuery) String() string {
	return fmt.Sprintf("scale of %s %s/%s", q.target.Kind, q.namespace, q.target.Name)
}

// scaler reads and writes the scale subresource of objects of any kind.
type scaler struct{ resources *kinds.Finder }

// read returns the action that answers a query. It does not fail: the query holds the error.
func (s scaler) read(q *scaleQuery) controller.Action {
	return controller.Call("read "+q.String(), func(ctx context.Context, c *client.Client) error {
		q.err = s.find(ctx, c, q)
		return nil
	})
}

func (s scaler) find(ctx context.Context, c *client.Client, q *scaleQuery) error {
	gv, err := schema.ParseGroupVersion(q.target.APIVersion)
	if err != nil {
		return err
	}
	kind := schema.GroupVersionKind{Group: gv.Group, Kind: q.target.Kind} // in any version
	for {
		found, known, err := s.resources.Find(ctx, c, kind)
		if err != nil {
			return err
		}
		if found.Scale != autoscalingv1.SchemeGroupVersion {
			s.resources.Forget(kind) // it may become so
			return fmt.Errorf("could not find scale subresource for %v in discovery information", found.GroupVersionResource)
		}
		q.resource = found
		err = q.get(ctx, c)
		if !known || !apierrors.IsNotFound(err) {
			return err
		}
		s.resources.Forget(kind) // if it was found a while ago, the resource may have gone rather than the object
	}
}

func (q *scaleQuery) path() []string {
	return q.resource.Path(q.namespace, q.target.Name, "scale")
}

func (q *scaleQuery) get(ctx context.Context, c *client.Client) error {
	q.found = &autoscalingv1.Scale{}
	return c.Kubernetes().AutoscalingV1().RESTClient().Get().AbsPath(q.path()...).Do(ctx).Into(q.found)
}

// write returns the action that sets the number of replicas. It does not fail: the query holds the error.
func (s scaler) write(q *scaleQuery, replicas int32) controller.Action {
	return controller.Call(fmt.Sprintf("set %v to %d", q, replicas), func(ctx context.Context, c *client.Client) error {
		q.err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			q.found.Spec.Replicas = replicas
			err := c.Kubernetes().AutoscalingV1().RESTClient().Put().AbsPath(q.path()...).Body(q.found).Do(ctx).Error()
			if apierrors.IsConflict(err) {
				if err := q.get(ctx, c); err != nil {
					return err
				}
			}
			return err
		})
		return nil
	})
}
