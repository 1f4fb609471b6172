// Package bundle brings along what a node needs beside skiff: containerd with its runc shim, runc, CNI plugins, a pause image and kubectl.
// build/ builds them from their modules, in a module of its own; embedded/ carries them in the program; here they are unpacked under
// the data directory, configured, started and kept running.
//
// Containers belong to containerd and its shims, not to skiff: those run in a session and a cgroup of their own and outlive skiff. A skiff
// that starts adopts the containerd that runs, unless that is an older one or has another configuration: then it is replaced, and containers keep running too.
//
//	<data-dir>/bundle/<hash>      what was unpacked; older ones stay while a shim runs from them
//	<data-dir>/containerd         images, snapshots and metadata; containerd.log
//	/run/skiff/<id>               sockets and what need not survive a reboot; short, as the path of a socket has at most 107 bytes
//
// It must not import the API server, its store or its cache, nor any component: the kubelet reaches containerd by its CRI socket.
package bundle
