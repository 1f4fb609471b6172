// Package cgroup makes the control groups that pods run in: kubepods for all of them, burstable and besteffort below it for the two lesser
// classes of service, and one for each pod with the pod's limits. Runtimes put containers into the pod's group.
//
// It works on version 1, where each controller may have a hierarchy of its own, and on version 2. On machines that mount both (hybrid) the
// controllers are in version 1, so that is what counts. It reads and writes the kernel's files directly: the handful of files that matter
// here take less code than a library's configuration would, and a library would bring systemd's and BPF's clients along.
package cgroup
