package apiregistration

import "skiff/internal/catalog"

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{APIService} }

const group = "apiregistration.k8s.io"
