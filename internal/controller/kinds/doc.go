// Package kinds finds, by discovery, the resources of kinds that no informer of the loops knows, such as those of custom resources: what an autoscaler
// scales, and what owns the pods of a disruption budget.
//
// It must not import the API server, its store or its cache, nor another component: it asks the API what is served.
package kinds
