// Package namespace ends namespaces: it deletes all that is in a namespace that is being deleted, whatever kinds there are, tells in
// the namespace's conditions how far that got, and lets the namespace go when nothing is left.
//
// One look is one sweep: pods first, then everything else. Upstream waits five seconds before its first, for other API servers to learn that the
// namespace takes no more objects. Here a namespace goes only after a sweep that found nothing, begun a moment after the last one that found
// something: what was on its way has arrived by then, and a namespace with little in it is gone within some milliseconds.
package namespace

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// New returns the loop. Its keys are namespaces.
func New(deps controller.Deps) controller.Loop {
	namespaces, pods := deps.Informers.Core().V1().Namespaces(), deps.Informers.Core().V1().Pods()
	find, running := namespaces.Lister(), pods.Lister()
	return controller.Loop{
		Name:      "namespace-controller",
		QueueName: "namespace",
		Workers:   10,
		Watch: []controller.Watch{
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}, Keys: func(_, after metav1.Object) []controller.Key {
				if after == nil || after.GetDeletionTimestamp() == nil {
					return nil
				}
				return []controller.Key{controller.KeyOf(after)}
			}},
			{Informer: pods.Informer(), Type: &corev1.Pod{}, Keys: withoutPods(find, pods.Informer().GetIndexer())},
		},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			namespace, err := find.Get(key.Name)
			if err != nil || namespace.DeletionTimestamp == nil || len(namespace.Spec.Finalizers) == 0 {
				return controller.Nothing
			}
			there, _ := running.Pods(key.Name).List(labels.Everything()) // a cache does not fail
			grace := longestGrace(there, now.Sub(namespace.DeletionTimestamp.Time))
			var found report
			clean := controller.Call("delete all that is in namespace "+key.Name, func(ctx context.Context, c *client.Client) error {
				found = sweep(ctx, c, key.Name, grace)
				return ctx.Err()
			})
			return controller.Decision{Actions: []controller.Action{clean}, Then: func(err error) controller.Decision {
				if err != nil {
					return controller.Decision{Err: err}
				}
				return decide(namespace, found, now)
			}}
		},
	}
}

// withoutPods has a namespace that is ending looked at when the last of its pods is gone: that can take long, and the rest waits for it.
func withoutPods(find corelisters.NamespaceLister, pods cache.Indexer) func(before, after metav1.Object) []controller.Key {
	return func(before, after metav1.Object) []controller.Key {
		if after != nil {
			return nil
		}
		namespace, err := find.Get(before.GetNamespace())
		if err != nil || namespace.DeletionTimestamp == nil {
			return nil
		}
		if left, err := pods.IndexKeys(cache.NamespaceIndex, namespace.Name); err != nil || len(left) > 0 {
			return nil
		}
		return []controller.Key{{Name: namespace.Name}}
	}
}

// longestGrace is how many seconds the pods of a namespace may need to end, or 0 if they have had that time since the namespace was deleted.
func longestGrace(pods []*corev1.Pod, since time.Duration) int64 {
	longest := int64(0)
	for _, pod := range pods {
		if phase := pod.Status.Phase; phase == corev1.PodSucceeded || phase == corev1.PodFailed {
			continue
		}
		if grace := pod.Spec.TerminationGracePeriodSeconds; grace != nil {
			longest = max(longest, *grace)
		}
	}
	if since >= time.Duration(longest)*time.Second {
		return 0
	}
	return longest
}

// finalize lets a namespace go as far as this loop is concerned.
func finalize(namespace *corev1.Namespace) controller.Action {
	free := &corev1.Namespace{ObjectMeta: *namespace.ObjectMeta.DeepCopy(), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{}}}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes {
			free.Spec.Finalizers = append(free.Spec.Finalizers, finalizer)
		}
	}
	return controller.Call("finalize Namespace "+namespace.Name, func(ctx context.Context, c *client.Client) error {
		_, err := c.Kubernetes().CoreV1().Namespaces().Finalize(ctx, free, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
