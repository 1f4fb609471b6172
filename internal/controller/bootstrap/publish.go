package bootstrap

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// The ConfigMap that publishes cluster settings for nodes.
const (
	ClusterConfigName = "skiff-config"
	ClusterConfigKey  = "cluster.json"
)

// NewPublisher returns the loop that publishes what joining machines need: kube-public/cluster-info for all, with the certificate authority, and
// kube-system/skiff-config for nodes, with cluster settings. Its keys are these two. A setting that is empty is not published.
func NewPublisher(deps controller.Deps) controller.Loop {
	namespaces, configMaps := deps.Informers.Core().V1().Namespaces(), deps.Informers.Core().V1().ConfigMaps()
	find := configMaps.Lister()
	type entry struct{ key, value string }
	published := map[controller.Key]entry{
		infoKey: {kubeconfigKey, deps.Config.ClusterInfo},
		{Namespace: metav1.NamespaceSystem, Name: ClusterConfigName}: {ClusterConfigKey, deps.Config.ClusterConfig},
	}
	return controller.Loop{
		Name: "cluster-info-controller", QueueName: "cluster_info", Workers: 1,
		Watch: []controller.Watch{
			// The namespaces always exist: they make the loop start.
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}, Keys: func(before, after metav1.Object) (keys []controller.Key) {
				for key := range published {
					if before == nil && key.Namespace == after.GetName() {
						keys = append(keys, key)
					}
				}
				return keys
			}},
			{Informer: configMaps.Informer(), Type: &corev1.ConfigMap{}, Keys: func(before, after metav1.Object) []controller.Key {
				obj := after
				if obj == nil {
					obj = before
				}
				if _, isOurs := published[controller.KeyOf(obj)]; !isOurs {
					return nil
				}
				return []controller.Key{controller.KeyOf(obj)}
			}},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			e := published[key]
			if e.value == "" {
				return controller.Nothing
			}
			is, err := find.ConfigMaps(key.Namespace).Get(key.Name)
			if err != nil {
				is = nil
			}
			return decideInfo(key, is, e.key, e.value)
		},
	}
}

// decideInfo sets an entry of a ConfigMap, and leaves its other entries alone.
func decideInfo(key controller.Key, is *corev1.ConfigMap, name, value string) controller.Decision {
	if is == nil {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string]string{name: value}}
		return controller.Decision{Actions: []controller.Action{controller.Create(made)}, Then: func(err error) controller.Decision {
			if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return controller.Nothing // the namespace was deleted; when it is created again, the loop is too
			}
			return controller.Decision{Err: err}
		}}
	}
	if is.Data[name] == value {
		return controller.Nothing
	}
	updated := is.DeepCopy()
	if updated.Data == nil {
		updated.Data = map[string]string{}
	}
	updated.Data[name] = value
	return controller.Decision{Actions: []controller.Action{controller.Update(updated)}}
}
