package apiextensions

import "skiff/internal/catalog"

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{CustomResourceDefinition}
}

const group = "apiextensions.k8s.io"
