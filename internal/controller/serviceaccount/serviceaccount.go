// Package serviceaccount sees to it that every namespace has a service account called "default", which pods run as unless they name another.
package serviceaccount

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// account is what every namespace has.
const account = "default"

// New returns the loop. Its keys are namespaces.
func New(deps controller.Deps) controller.Loop {
	namespaces, accounts := deps.Informers.Core().V1().Namespaces(), deps.Informers.Core().V1().ServiceAccounts()
	find, there := namespaces.Lister(), accounts.Lister()
	return controller.Loop{
		Name:           "serviceaccount-controller",
		ServiceAccount: "service-account-controller",
		QueueName:      "serviceaccount",
		Workers:        1,
		Watch: []controller.Watch{
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}},
			{Informer: accounts.Informer(), Type: &corev1.ServiceAccount{}, Keys: namespaceOfGone},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			namespace, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			_, err = there.ServiceAccounts(key.Name).Get(account)
			return decide(namespace, err == nil)
		},
	}
}

// namespaceOfGone has a namespace looked at when it lost its account.
func namespaceOfGone(before, after metav1.Object) []controller.Key {
	if after != nil || before.GetName() != account {
		return nil
	}
	return []controller.Key{{Name: before.GetNamespace()}}
}

// decide creates the account in a namespace that lacks it and takes objects.
func decide(namespace *corev1.Namespace, hasAccount bool) controller.Decision {
	if hasAccount || namespace.Status.Phase != corev1.NamespaceActive {
		return controller.Nothing
	}
	made := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: account}}
	return controller.Decision{Actions: []controller.Action{controller.Create(made)}, Then: func(err error) controller.Decision {
		if err == nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return controller.Nothing
		}
		return controller.Decision{Err: err}
	}}
}
