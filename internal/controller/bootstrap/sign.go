package bootstrap

import (
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/controller"
)

const (
	clusterInfo     = "cluster-info"
	kubeconfigKey   = "kubeconfig"
	signaturePrefix = "jws-kubeconfig-"
)

var infoKey = controller.Key{Namespace: metav1.NamespacePublic, Name: clusterInfo}

// NewSigner returns the loop that signs cluster-info with every token. Its one key is that ConfigMap.
func NewSigner(deps controller.Deps) controller.Loop {
	configMaps, secrets := deps.Informers.Core().V1().ConfigMaps(), deps.Informers.Core().V1().Secrets()
	info, tokens := configMaps.Lister().ConfigMaps(metav1.NamespacePublic), secrets.Lister().Secrets(metav1.NamespaceSystem)
	return controller.Loop{
		Name: "bootstrap-signer-controller", ServiceAccount: "bootstrap-signer", QueueName: "bootstrap_signer_queue", Workers: 1,
		Watch: []controller.Watch{
			{Informer: configMaps.Informer(), Type: &corev1.ConfigMap{}, Keys: func(before, after metav1.Object) []controller.Key {
				if after == nil || controller.KeyOf(after) != infoKey {
					return nil
				}
				return []controller.Key{infoKey}
			}},
			{Informer: secrets.Informer(), Type: &corev1.Secret{}, Keys: func(before, after metav1.Object) []controller.Key {
				for _, obj := range []metav1.Object{before, after} {
					if secret, ok := obj.(*corev1.Secret); ok && isToken(secret) {
						return []controller.Key{infoKey}
					}
				}
				return nil
			}},
		},
		Reconcile: func(_ controller.Key, now time.Time) controller.Decision {
			is, err := info.Get(clusterInfo)
			if err != nil {
				return controller.Nothing
			}
			all, _ := tokens.List(labels.Everything()) // a lister over a cache cannot fail
			return decideSignatures(is, all, now)
		},
	}
}

// decideSignatures makes the ConfigMap have a signature of each valid token and no others.
func decideSignatures(is *corev1.ConfigMap, secrets []*corev1.Secret, now time.Time) controller.Decision {
	text, ok := is.Data[kubeconfigKey]
	if !ok {
		return controller.Nothing
	}
	data := maps.Clone(is.Data)
	maps.DeleteFunc(data, func(key, _ string) bool { return strings.HasPrefix(key, signaturePrefix) })
	var requeueAfter time.Duration
	for _, secret := range secrets {
		id, key, ok := signingToken(secret, now)
		if !ok {
			continue
		}
		data[signaturePrefix+id] = signature(text, id, key)
		if at, limited := expiration(secret); limited && (requeueAfter == 0 || at.Sub(now) < requeueAfter) {
			requeueAfter = at.Sub(now)
		}
	}
	if maps.Equal(data, is.Data) {
		return controller.Decision{RequeueAfter: requeueAfter}
	}
	updated := is.DeepCopy()
	updated.Data = data
	return controller.Decision{Actions: []controller.Action{controller.Update(updated)}, RequeueAfter: requeueAfter}
}
