// Package join tests that a second machine, which has nothing but the program and a token, becomes a node of a cluster.
package join
