// Package environment works out what a container finds around it that is not a volume: its variables, its command with variables put in,
// /etc/hosts, resolv.conf and its host name.
//
// These are pure functions of the pod, of what it refers to and of what is known about the node. They start nothing and write nothing; only
// a variable taken from a file of one of the pod's volumes is read from the disk.
package environment
