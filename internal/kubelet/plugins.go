package kubelet

import (
	"context"
	"path/filepath"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"skiff/internal/kubelet/csi"
	"skiff/internal/kubelet/plugins"
)

// runPlugins registers the drivers that run in this process, and those that come with a socket, until ctx ends.
func (k *Kubelet) runPlugins(ctx context.Context) {
	info := &csi.NodeInfo{Client: k.options.Client.Kubernetes(), NodeName: k.options.NodeName, Log: k.log}
	k.csi.Start(ctx, info)
	err := plugins.Run(ctx, plugins.Options{Dir: filepath.Join(k.options.RootDir, "plugins_registry"), Log: k.log,
		Handlers: map[string]plugins.Handler{registration.CSIPlugin: &csi.Registration{Plugin: k.csi, Info: info}}})
	if err != nil && ctx.Err() == nil {
		k.log.Warn("plugins are not registered any more", "err", err)
	}
}
