// Package plugins finds the plugins of the node, CSI drivers, device plugins and DRA drivers, by the sockets that they put into a directory,
// <kubelet directory>/plugins_registry, and registers each with the handler of its type.
//
// The directory is watched and not polled: any change has it listed again, and a socket that is new, or another file than before, is a plugin that
// has started. One that cannot be registered is tried again with back-off until its socket is removed.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package plugins
