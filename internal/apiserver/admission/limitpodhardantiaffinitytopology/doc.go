// Package limitpodhardantiaffinitytopology is the admission plugin LimitPodHardAntiAffinityTopology: required anti-affinity between pods may only have the topology key
// kubernetes.io/hostname, so that no pod keeps others from a whole zone.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package limitpodhardantiaffinitytopology
