// Package coordination declares coordination.k8s.io: leases, by which nodes show that they live and controllers agree on
// a leader.
package coordination
