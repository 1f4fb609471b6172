// Package nodeipam is the node-ipam-controller: it allocates a pod CIDR to each node out of the cluster's, one of each IP family, and frees it when
// the node is deleted. Which CIDRs are taken is read from the nodes, so nothing is lost when the loop ends at any point; in between it
// remembers what it is about to write.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package nodeipam
