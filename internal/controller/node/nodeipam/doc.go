// Package nodeipam is the node-ipam-controller: it gives each node a range of pod addresses out of the cluster's, one of each IP family, and takes
// it back when the node is gone. Which ranges are taken is read off the nodes, so nothing is lost when the loop ends at any point; in between it
// remembers what it is about to write.
package nodeipam
