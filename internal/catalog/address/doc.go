// Package address checks the IP addresses and CIDR blocks that API objects carry: services, endpoints, endpoint slices,
// nodes. These fields are older than Kubernetes' strict rules, so a value that an object already holds stays acceptable.
package address
