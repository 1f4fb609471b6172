package services

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	endpointsliceutil "k8s.io/endpointslice/util"

	"skiff/internal/controller"
)

// OfPod returns a Watch.Keys for pods: the Services that select the pod, or did before the change.
func OfPod(services corelisters.ServiceLister) func(before, after metav1.Object) []controller.Key {
	return func(before, after metav1.Object) []controller.Key {
		names, err := endpointsliceutil.GetServicesToUpdate(services, endpointsliceutil.GetPodUpdateProjectionKey(before, after))
		if err != nil {
			return nil // listers over caches do not fail
		}
		var keys []controller.Key
		for name := range names {
			namespace, name, _ := strings.Cut(name, "/")
			keys = append(keys, controller.Key{Namespace: namespace, Name: name})
		}
		return keys
	}
}
