// Package kubelettest has a fake container runtime for tests. It keeps to the contract of cri.Runtime as containerd does: sandboxes, containers, images, log
// directories, events, in the same order and with the same errors. Tests say how containers behave (Script), have calls fail or take long (Fail, Delay), and
// have containers exit (Exit).
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package kubelettest
