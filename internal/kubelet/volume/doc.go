// Package volume makes a pod's volumes ready on the node and says how containers mount them.
//
// Everything of a pod is below one directory, laid out as upstream lays it out, so that other tools find it:
//
//	<root>/<uid>/volumes/kubernetes.io~configmap/<volume>/    and empty-dir, secret, projected, downward-api, local-volume
//	<root>/<uid>/volume-subpaths/<volume>/<container>/<n>     one bound file or directory for each mount with a subPath
//
// What is on the disk counts, not what is remembered: SetUp may be called again and again, also by a process that was just started, and each
// time brings volumes up to date. Config maps, secrets and tokens are exchanged as a whole, so that no container ever sees half of an update.
package volume
