package rootca

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

const (
	configMap   = "kube-root-ca.crt"
	file        = "ca.crt"
	annotation  = "kubernetes.io/description"
	description = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
		"No other usage is guaranteed across distributions of Kubernetes clusters."
)

// New returns the loop. Its keys are namespaces.
func New(deps controller.Deps) controller.Loop {
	namespaces, configMaps := deps.Informers.Core().V1().Namespaces(), deps.Informers.Core().V1().ConfigMaps()
	find, published := namespaces.Lister(), configMaps.Lister()
	authority := string(deps.Config.RootCA)
	return controller.Loop{
		Name:           "root-ca-certificate-publisher-controller",
		ServiceAccount: "root-ca-cert-publisher",
		QueueName:      "root_ca_cert_publisher",
		Workers:        1,
		Watch: []controller.Watch{
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}},
			{Informer: configMaps.Informer(), Type: &corev1.ConfigMap{}, Keys: namespaceOf},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			namespace, err := find.Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			is, err := published.ConfigMaps(key.Name).Get(configMap)
			if err != nil {
				is = nil
			}
			return decide(namespace, is, authority)
		},
	}
}

// namespaceOf returns the namespace whose ConfigMap changed.
func namespaceOf(before, after metav1.Object) []controller.Key {
	obj := after
	if obj == nil {
		obj = before
	}
	if obj.GetName() != configMap {
		return nil
	}
	return []controller.Key{{Name: obj.GetNamespace()}}
}

// decide publishes the certificate authority in an active namespace whose ConfigMap is missing (nil) or different.
func decide(namespace *corev1.Namespace, is *corev1.ConfigMap, authority string) controller.Decision {
	data := map[string]string{file: authority}
	switch {
	case namespace.Status.Phase != corev1.NamespaceActive:
		return controller.Nothing
	case is == nil:
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: configMap, Annotations: map[string]string{annotation: description}}, Data: data}
		return controller.Decision{Actions: []controller.Action{controller.Create(made)}, Then: func(err error) controller.Decision {
			if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return controller.Nothing // the namespace was deleted meanwhile
			}
			return controller.Decision{Err: err}
		}}
	case maps.Equal(is.Data, data) && is.Annotations[annotation] != "":
		return controller.Nothing
	}
	updated := is.DeepCopy()
	updated.Data = data
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, annotation, description)
	return controller.Decision{Actions: []controller.Action{controller.Update(updated)}}
}
