package bootstrap

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"

	"skiff/internal/controller"
)

// NewCleaner returns the loop that deletes expired tokens, and tokens without uses left once those machines have joined. Its keys are Secrets.
func NewCleaner(deps controller.Deps) controller.Loop {
	secrets, nodes := deps.Informers.Core().V1().Secrets(), deps.Informers.Core().V1().Nodes()
	find, known := secrets.Lister(), nodes.Lister()
	return controller.Loop{
		Name: "token-cleaner-controller", ServiceAccount: "token-cleaner", QueueName: "token_cleaner", Workers: 1,
		Watch: []controller.Watch{
			{Informer: secrets.Informer(), Type: &corev1.Secret{}, Keys: func(_, after metav1.Object) []controller.Key {
				if secret, ok := after.(*corev1.Secret); ok && isToken(secret) {
					return []controller.Key{controller.KeyOf(secret)}
				}
				return nil
			}},
			{Informer: nodes.Informer(), Keys: func(before, after metav1.Object) (keys []controller.Key) {
				if before != nil || after == nil {
					return nil
				}
				all, _ := find.Secrets(metav1.NamespaceSystem).List(labels.Everything()) // a cache cannot fail
				for _, secret := range all {
					if isToken(secret) && slices.ContainsFunc(UsedBy(secret), func(u Use) bool { return u.Node == after.GetName() }) {
						keys = append(keys, controller.KeyOf(secret))
					}
				}
				return keys
			}},
		},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			secret, err := find.Secrets(key.Namespace).Get(key.Name)
			if err != nil || !isToken(secret) {
				return controller.Nothing
			}
			return decideToken(secret, known, now)
		},
	}
}

// decideToken deletes a token that is of no more use. A token without uses left stays until each of those machines has fetched its certificate, which a
// machine shows by becoming a node, or has had JoinTime for it.
func decideToken(secret *corev1.Secret, nodes corelisters.NodeLister, now time.Time) controller.Decision {
	remove := controller.Decision{Actions: []controller.Action{controller.Delete(secret, metav1.DeleteOptions{})}}
	var requeueAfter time.Duration
	if at, limited := expiration(secret); limited {
		if requeueAfter = at.Sub(now); requeueAfter <= 0 {
			return remove
		}
	}
	limit, limited := Uses(secret)
	used := UsedBy(secret)
	if !limited || len(used) < limit {
		return controller.Decision{RequeueAfter: requeueAfter}
	}
	var wait time.Duration
	for _, u := range used {
		if node, err := nodes.Get(u.Node); err == nil && !node.CreationTimestamp.Time.Before(u.At) {
			continue
		}
		wait = max(wait, u.At.Add(JoinTime).Sub(now))
	}
	if wait <= 0 {
		return remove
	}
	if requeueAfter <= 0 || wait < requeueAfter {
		requeueAfter = wait
	}
	return controller.Decision{RequeueAfter: requeueAfter}
}
