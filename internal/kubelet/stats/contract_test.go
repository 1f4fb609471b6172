package stats_test

import (
	"skiff/internal/kubelet/cgroup"
	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/server"
	"skiff/internal/kubelet/stats"
	"skiff/internal/kubelet/volume"
)

// A provider is what the kubelet's server asks, and takes what a kubelet has.
var (
	_ server.Stats  = (*stats.Provider)(nil)
	_ stats.Runtime = cri.Runtime(nil)
	_ stats.Cgroups = (*cgroup.Manager)(nil)
	_ stats.Volumes = (*volume.Manager)(nil)
	_ stats.Pods    = server.Pods(nil)
)
