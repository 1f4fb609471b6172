// Package podnodeselector is the admission plugin PodNodeSelector: pods get the node selector of their namespace's annotation
// scheduler.alpha.kubernetes.io/node-selector, or else the clusterDefaultNodeSelector of the plugin's configuration. A pod whose own selector contradicts it, or has
// labels beside those that the configuration allows in the namespace, is refused.
//
// What differs from upstream: a configuration with a mistake refuses the start, where upstream ignores it or refuses pods.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package podnodeselector
