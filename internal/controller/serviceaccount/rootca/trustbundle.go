package rootca

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"skiff/internal/controller"
)

// servingSigner is the signer of the API server's certificates.
const servingSigner = "kubernetes.io/kube-apiserver-serving"

// NewTrustBundle returns the loop that publishes the certificate authority in a ClusterTrustBundle, whose name has a hash of it, and deletes the
// other bundles of its signer. It has one key.
func NewTrustBundle(deps controller.Deps) controller.Loop {
	bundles, namespaces := deps.Informers.Certificates().V1().ClusterTrustBundles(), deps.Informers.Core().V1().Namespaces()
	lister := bundles.Lister()
	authority := string(deps.Config.RootCA)
	return controller.Loop{
		Name: "kube-apiserver-serving-clustertrustbundle-publisher-controller", ServiceAccount: "kube-apiserver-serving-clustertrustbundle-publisher",
		QueueName: "ca_cert_publisher_cluster_trust_bundles", Workers: 1,
		Watch: []controller.Watch{
			{Informer: bundles.Informer(), Type: &certificatesv1.ClusterTrustBundle{}, Keys: func(before, after metav1.Object) []controller.Key {
				for _, obj := range []metav1.Object{before, after} {
					if bundle, ok := obj.(*certificatesv1.ClusterTrustBundle); ok && bundle.Spec.SignerName == servingSigner {
						return []controller.Key{{Name: bundleName(authority)}}
					}
				}
				return nil
			}},
			{Informer: namespaces.Informer(), Type: &corev1.Namespace{}, Keys: func(before, after metav1.Object) []controller.Key {
				if before == nil && after.GetName() == metav1.NamespaceSystem { // every cluster has it: for the first reconcile
					return []controller.Key{{Name: bundleName(authority)}}
				}
				return nil
			}},
		},
		Reconcile: func(_ controller.Key, _ time.Time) controller.Decision {
			all, err := lister.List(labels.Everything())
			if err != nil || authority == "" {
				return controller.Decision{Err: err}
			}
			return decideBundle(all, authority)
		},
	}
}

// bundleName returns the name of the bundle with a certificate authority.
func bundleName(authority string) string {
	hash := sha256.Sum256([]byte(authority))
	return fmt.Sprintf("%s:%x", strings.ReplaceAll(servingSigner, "/", ":"), hash[:12])
}

// decideBundle creates or corrects the bundle, and deletes those of earlier authorities.
func decideBundle(all []*certificatesv1.ClusterTrustBundle, authority string) controller.Decision {
	name := bundleName(authority)
	var write controller.Action = controller.Create(&certificatesv1.ClusterTrustBundle{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: servingSigner, TrustBundle: authority}})
	var others []controller.Action
	for _, bundle := range all {
		switch {
		case bundle.Spec.SignerName != servingSigner:
		case bundle.Name != name:
			others = append(others, controller.Delete(bundle, metav1.DeleteOptions{}))
		case bundle.Spec.TrustBundle == authority:
			write = nil
		default:
			corrected := bundle.DeepCopy()
			corrected.Spec.TrustBundle = authority
			write = controller.Update(corrected)
		}
	}
	if write != nil {
		others = append([]controller.Action{write}, others...)
	}
	return controller.Decision{Actions: others}
}
