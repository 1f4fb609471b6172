// Package devices gives devices of the node to containers: those of device plugins, which register at the socket <kubelet
// directory>/device-plugins/kubelet.sock, or by one in the plugins' registry.
//
// A plugin's devices are a resource of the node, of which the node's status says how many there are and how many are healthy. When a pod is admitted,
// devices are chosen for each container that asks for some, and the plugin says what the container gets with them: device nodes, mounts,
// environment variables, annotations, CDI devices. That is kept in a file until the pod has terminated, so that containers which a kubelet
// started later creates have the same devices.
//
// What differs from upstream: devices are not aligned to NUMA nodes, and there is no PodResources API.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package devices
