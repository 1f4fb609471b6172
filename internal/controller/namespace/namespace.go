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
			existing, _ := running.Pods(key.Name).List(labels.Everything()) // a cache does not fail
			grace := longestGrace(existing, now.Sub(namespace.DeletionTimestamp.Time))
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

// withoutPods returns the key of a terminating namespace when its last pod is gone: that can take long, and the rest waits for it.
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

// longestGrace returns the longest grace period of a namespace's pods in seconds, or 0 if it has passed since the namespace was deleted.
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

// finalize removes this loop's finalizer from a namespace.
func finalize(namespace *corev1.Namespace) controller.Action {
	finalized := &corev1.Namespace{ObjectMeta: *namespace.ObjectMeta.DeepCopy(), Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{}}}
	for _, finalizer := range namespace.Spec.Finalizers {
		if finalizer != corev1.FinalizerKubernetes {
			finalized.Spec.Finalizers = append(finalized.Spec.Finalizers, finalizer)
		}
	}
	return controller.Call("finalize Namespace "+namespace.Name, func(ctx context.Context, c *client.Client) error {
		_, err := c.Kubernetes().CoreV1().Namespaces().Finalize(ctx, finalized, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}
