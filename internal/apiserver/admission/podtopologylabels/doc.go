// Package podtopologylabels is the admission plugin PodTopologyLabels: a pod gets the labels topology.kubernetes.io/zone and region of the node that it is bound to.
// A binding carries them to the pod; a pod that is created on a node gets them at once.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package podtopologylabels
