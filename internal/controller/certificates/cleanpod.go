package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/controller"
)

// keepPodRequest is how long PodCertificateRequests are kept: whoever asked has the certificate by then, or has asked again.
const keepPodRequest = 15 * time.Minute

// NewPodCleaner returns the loop that deletes PodCertificateRequests. Its keys are these.
func NewPodCleaner(deps controller.Deps) controller.Loop {
	requests := deps.Informers.Certificates().V1().PodCertificateRequests()
	lister := requests.Lister()
	return controller.Loop{Name: "podcertificaterequest-cleaner-controller", ServiceAccount: "podcertificaterequestcleaner", Workers: 1,
		Watch: []controller.Watch{{Informer: requests.Informer(), Type: &certificatesv1.PodCertificateRequest{}, Keys: created}},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			request, err := lister.PodCertificateRequests(key.Namespace).Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			if left := request.CreationTimestamp.Add(keepPodRequest).Sub(now); left > 0 {
				return controller.Decision{RequeueAfter: left}
			}
			return controller.Decision{Actions: []controller.Action{controller.Delete(request, metav1.DeleteOptions{})}}
		},
	}
}

// created returns the key of an object that is new.
func created(before, after metav1.Object) []controller.Key {
	if before != nil {
		return nil
	}
	return []controller.Key{controller.KeyOf(after)}
}
