// Package storage declares the resources of the group storage.k8s.io: classes of storage and of its attributes, what CSI
// drivers say of themselves, of nodes and of the capacity they have left, and the attachment of volumes to nodes.
package storage
