// Package nodeselector checks node selectors: terms over the labels and fields of nodes, with which pods, persistent
// volumes and device slices say where they can be.
package nodeselector
