package kubelet

import (
	"context"
	"path/filepath"
	"sync"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"skiff/internal/kubelet/csi"
	"skiff/internal/kubelet/plugins"
)

// runPlugins registers the drivers that run in this process, and those that come with a socket, until ctx ends.
func (k *Kubelet) runPlugins(ctx context.Context) {
	info := &csi.NodeInfo{Client: k.options.Client.Kubernetes(), NodeName: k.options.NodeName, Log: k.log}
	k.csi.Start(ctx, info)
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() {
		if err := k.devices.Run(ctx); err != nil && ctx.Err() == nil {
			k.log.Warn("device plugins cannot register", "err", err)
		}
	})
	err := plugins.Run(ctx, plugins.Options{Dir: filepath.Join(k.options.RootDir, "plugins_registry"), Log: k.log,
		Handlers: map[string]plugins.Handler{registration.CSIPlugin: &csi.Registration{Plugin: k.csi, Info: info}, registration.DevicePlugin: k.devices, registration.DRAPlugin: k.dra}})
	if err != nil && ctx.Err() == nil {
		k.log.Warn("plugins are not registered any more", "err", err)
	}
}
