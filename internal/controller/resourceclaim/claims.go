package resourceclaim

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// parallelReads is how many pods are read at a time for one claim.
const parallelReads = 8

// podQuery is a question to the API for a pod that a claim is reserved for. The scheduler may have reserved the claim for a pod that the caches do not
// have yet, so the API has to say that a pod is gone.
type podQuery struct {
	namespace string
	consumer  resourcev1.ResourceClaimConsumerReference

	found *corev1.Pod // nil if there is no such pod
	err   error
}

// action returns the action that answers a query. It does not fail: the query holds the error.
func (q *podQuery) action() controller.Action {
	return controller.Call(fmt.Sprintf("read pod %s/%s", q.namespace, q.consumer.Name), func(ctx context.Context, c *client.Client) error {
		q.found, q.err = c.Kubernetes().CoreV1().Pods(q.namespace).Get(ctx, q.consumer.Name, metav1.GetOptions{})
		if q.err != nil {
			q.found = nil
		}
		if apierrors.IsNotFound(q.err) {
			q.err = nil
		}
		return nil
	})
}

// reconcileClaim finds out which consumers of a claim remain, and decides.
func (l *loop) reconcileClaim(claim *resourcev1.ResourceClaim) controller.Decision {
	var queries []*podQuery
	known := map[string]*corev1.Pod{}
	var read []controller.Action
	for _, consumer := range claim.Status.ReservedFor {
		if !isPod(consumer) {
			continue
		}
		pod, err := l.pods.Pods(claim.Namespace).Get(consumer.Name)
		if err != nil {
			q := &podQuery{namespace: claim.Namespace, consumer: consumer}
			queries, read = append(queries, q), append(read, l.readPod(q))
			continue
		}
		known[consumer.Name] = pod
	}
	var owner *corev1.Pod
	if ref := owningPod(claim); ref != nil {
		owner, _ = l.pods.Pods(claim.Namespace).Get(ref.Name)
	}
	if len(queries) == 0 {
		return decideClaim(claim, known, owner)
	}
	return controller.Decision{Actions: []controller.Action{controller.Parallel(parallelReads, read...)}, Then: func(error) controller.Decision {
		for _, q := range queries {
			if q.err != nil {
				return controller.Decision{Err: fmt.Errorf("failed to read a pod that the claim is reserved for: %w", q.err)}
			}
			if q.found != nil {
				known[q.consumer.Name] = q.found
			}
		}
		return decideClaim(claim, known, owner)
	}}
}

func isPod(consumer resourcev1.ResourceClaimConsumerReference) bool {
	return consumer.APIGroup == "" && consumer.Resource == "pods"
}

// decideClaim takes pods that are gone or done from a claim. pods holds those that there are by name, owner is the pod that the claim was created for.
func decideClaim(claim *resourcev1.ResourceClaim, pods map[string]*corev1.Pod, owner *corev1.Pod) controller.Decision {
	remaining := slices.DeleteFunc(slices.Clone(claim.Status.ReservedFor), func(consumer resourcev1.ResourceClaimConsumerReference) bool {
		if !isPod(consumer) {
			return false // of a kind that only others know
		}
		pod := pods[consumer.Name]
		return pod == nil || pod.UID != consumer.UID || isDone(pod)
	})
	var actions []controller.Action
	held := slices.Contains(claim.Finalizers, resourcev1.Finalizer)
	if len(remaining) < len(claim.Status.ReservedFor) || held && claim.DeletionTimestamp != nil && len(remaining) == 0 {
		changed := claim.DeepCopy()
		changed.Status.ReservedFor = remaining
		if len(remaining) == 0 && held {
			changed.Status.Allocation = nil // the devices are free for others
		}
		actions = append(actions, release(claim, changed))
	}
	if ref := owningPod(claim); ref != nil && claim.DeletionTimestamp == nil && len(remaining) == 0 && owner != nil && (owner.UID != ref.UID || isDone(owner)) {
		actions = append(actions, controller.Delete(claim, metav1.DeleteOptions{}))
	}
	return controller.Decision{Actions: actions}
}

// release returns an action that writes the status of a claim, and then removes the finalizer that protects an allocation, if there is none any more. Both are
// one action because the scheduler sets the finalizer before it allocates: a claim that is found like that must keep it.
func release(claim, changed *resourcev1.ResourceClaim) controller.Action {
	free := changed.Status.Allocation == nil && slices.Contains(changed.Finalizers, resourcev1.Finalizer)
	what := fmt.Sprintf("reserve ResourceClaim %v for %d of %d", controller.KeyOf(claim), len(changed.Status.ReservedFor), len(claim.Status.ReservedFor))
	if claim.Status.Allocation != nil && changed.Status.Allocation == nil {
		what += ", deallocate it"
	}
	if free {
		what += ", remove its finalizer"
	}
	return controller.Call(what, func(ctx context.Context, c *client.Client) error {
		api := c.Kubernetes().ResourceV1().ResourceClaims(claim.Namespace)
		written, err := changed, error(nil)
		if len(claim.Status.ReservedFor) != len(changed.Status.ReservedFor) || claim.Status.Allocation != nil && changed.Status.Allocation == nil {
			written, err = api.UpdateStatus(ctx, changed, metav1.UpdateOptions{})
		}
		if err != nil || !free {
			return err
		}
		written = written.DeepCopy()
		written.Finalizers = slices.DeleteFunc(written.Finalizers, func(f string) bool { return f == resourcev1.Finalizer })
		_, err = api.Update(ctx, written, metav1.UpdateOptions{})
		return err
	})
}
