package storagemigration

import "skiff/internal/catalog"

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{StorageVersionMigration} }

const group = "storagemigration.k8s.io"
