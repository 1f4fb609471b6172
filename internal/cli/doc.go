// Package cli has the commands of skiff, about one file each. A command parses flags into a configuration of package cluster, calls it, and prints the result.
// cmd/skiff is nothing but this package.
//
// It must not import a component (hollow, controller, scheduler, kubelet, network, dashboard) nor what is behind the API (apiserver, store, cache): what flags can
// be set to, and their defaults, come from cluster.
package cli
