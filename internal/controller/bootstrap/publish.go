package bootstrap

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// The config map in which nodes find how the cluster is laid out.
const (
	ClusterConfigName = "skiff-config"
	ClusterConfigKey  = "cluster.json"
)

// NewPublisher returns the loop that tells machines that join of the cluster: everybody whom to trust, in kube-public/cluster-info, and nodes how it is laid out,
// in kube-system/skiff-config. Its keys are these two. What it is not told it does not publish.
func NewPublisher(deps controller.Deps) controller.Loop {
	namespaces, configMaps := deps.Informers.Core().V1().Namespaces(), deps.Informers.Core().V1().ConfigMaps()
	find := configMaps.Lister()
	type entry struct{ key, value string }
	told := map[controller.Key]entry{
		infoKey: {kubeconfigKey, deps.Config.ClusterInfo},
		{Namespace: metav1.NamespaceSystem, Name: ClusterConfigName}: {ClusterConfigKey, deps.Config.ClusterConfig},
	}
	return controller.Loop{
		Name: "cluster-info-controller", QueueName: "cluster_info", Workers: 1,
		Watch: []controller.Watch{
			// The namespaces are what is always there: with them the loop begins.
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}, Keys: func(before, after metav1.Object) (keys []controller.Key) {
				for key := range told {
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
				if _, ours := told[controller.KeyOf(obj)]; !ours {
					return nil
				}
				return []controller.Key{controller.KeyOf(obj)}
			}},
		},
		Reconcile: func(key controller.Key, _ time.Time) controller.Decision {
			e := told[key]
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

// decideInfo has a config map say something, beside what others write into it.
func decideInfo(key controller.Key, is *corev1.ConfigMap, name, value string) controller.Decision {
	if is == nil {
		made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: map[string]string{name: value}}
		return controller.Decision{Actions: []controller.Action{controller.Create(made)}, Then: func(err error) controller.Decision {
			if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return controller.Nothing // the namespace has gone; with it the loop begins again
			}
			return controller.Decision{Err: err}
		}}
	}
	if is.Data[name] == value {
		return controller.Nothing
	}
	right := is.DeepCopy()
	if right.Data == nil {
		right.Data = map[string]string{}
	}
	right.Data[name] = value
	return controller.Decision{Actions: []controller.Action{controller.Update(right)}}
}
