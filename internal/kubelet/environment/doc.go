// Package environment computes what a container gets from its node that is not a volume: environment variables, its command with variables expanded,
// /etc/hosts, resolv.conf and its host name.
//
// These are pure functions of the pod, of what it refers to and of what is known about the node. They start nothing and write nothing; only a variable that
// comes from a file in one of the pod's volumes is read from the disk.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package environment
