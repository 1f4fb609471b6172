// Package join tests that a second machine, which has nothing but the program and a token, becomes a node of a cluster.
//
// It must not import skiff's components: it runs the program as a user does.
package join
