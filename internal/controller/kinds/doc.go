// Package kinds finds, by discovery, the resources of kinds that no informer of the loops knows, such as those of custom resources: what an autoscaler
// scales, and what owns the pods of a disruption budget.
package kinds
