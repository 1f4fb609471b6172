package storage

import "skiff/internal/catalog"

const (
	group   = "storage.k8s.io"
	version = "v1"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment, VolumeAttributesClass}
}

func fill[T any](field **T, value T) {
	if *field == nil {
		v := value // so that the parameter itself need not escape
		*field = &v
	}
}
