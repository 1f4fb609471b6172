// Package cgroup manages the cgroups that pods run in: kubepods for all pods, burstable and besteffort below it for those two QoS classes, and one for each
// pod with the pod's limits. Container runtimes create the cgroups of containers below the pod's.
//
// It works with cgroup v1, where each controller may have a hierarchy of its own, and with v2. On hybrid machines, which mount both, the controllers are in v1,
// so v1 is used. It reads and writes the kernel's files directly: the few files that matter here take less code than a library's configuration would, and a
// library would bring systemd's and BPF's clients along.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package cgroup
