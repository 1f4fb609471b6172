package serviceaccount

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// account is the name of the service account that every namespace has.
const account = "default"

// New returns the loop. Its keys are namespaces.
func New(deps controller.Deps) controller.Loop {
	namespaces, accounts := deps.Informers.Core().V1().Namespaces(), deps.Informers.Core().V1().ServiceAccounts()
	find, existing := namespaces.Lister(), accounts.Lister()
	return controller.Loop{
		Name:           "serviceaccount-controller",
		ServiceAccount: "service-account-controller",
		QueueName:      "serviceaccount",
		Workers:        1,
		Watch: []controller.Watch{
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}},
			{Informer: accounts.Informer(), Type: &corev1.ServiceAccount{}, Keys: namespaceOfDeleted},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			namespace, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			_, err = existing.ServiceAccounts(key.Name).Get(account)
			return decide(namespace, err == nil)
		},
	}
}

// namespaceOfDeleted returns the namespace whose default service account was deleted.
func namespaceOfDeleted(before, after metav1.Object) []controller.Key {
	if after != nil || before.GetName() != account {
		return nil
	}
	return []controller.Key{{Name: before.GetNamespace()}}
}

// decide creates the service account in an active namespace that lacks it.
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
