// Package volume sets up the volumes of pods on the node, and returns how containers mount them.
//
// Everything of a pod is below one directory, laid out as upstream lays it out, so that other tools find it:
//
//	<root>/<uid>/volumes/kubernetes.io~configmap/<volume>/    and empty-dir, secret, projected, downward-api, local-volume
//	<root>/<uid>/volume-subpaths/<volume>/<container>/<n>     one bound file or directory for each mount with a subPath
//
// The state is what is on the disk, not what is in memory: SetUp may be called any number of times, also by a process that was just started, and refreshes
// volumes each time. ConfigMaps, Secrets and tokens are replaced atomically, so that no container ever sees half of an update.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package volume
