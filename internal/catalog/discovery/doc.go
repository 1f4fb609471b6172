// Package discovery declares discovery.k8s.io: endpoint slices, which say where the pods behind a service are.
package discovery
