package core

import (
	"skiff/internal/catalog"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/volume"
)

// Resources returns the resources of the core group, in the order of discovery.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{
		Binding,
		ComponentStatus,
		ConfigMap,
		Endpoints,
		Event,
		LimitRange,
		Namespace,
		Node,
		volume.PersistentVolumeClaim,
		volume.PersistentVolume,
		pod.Pod,
		PodTemplate,
		ReplicationController,
		ResourceQuota,
		Secret,
		ServiceAccount,
		Service,
	}
}
