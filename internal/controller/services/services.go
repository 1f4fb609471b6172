// Package services is what the loops share that keep lists of what is behind Services.
package services

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	endpointsliceutil "k8s.io/endpointslice/util"

	"skiff/internal/controller"
)

// OfPod finds the Services that a pod's change concerns: those that select it, or did. It is the Keys of a Watch.
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
