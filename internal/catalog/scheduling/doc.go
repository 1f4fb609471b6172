// Package scheduling declares the resources of the group scheduling.k8s.io: the classes of priority that pods can have,
// with the two that every cluster has from its start.
package scheduling
