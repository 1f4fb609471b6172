package resource

import "skiff/internal/catalog"

const (
	group   = "resource.k8s.io"
	version = "v1"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice}
}
