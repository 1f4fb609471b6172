// Package check checks whether a machine can run a node: its user, kernel, cgroups, capabilities, file systems, network, memory, disk and ports. Each finding
// says what to do about it. `skiff check` prints them; nothing of the machine is changed.
//
// It must not import the API server, its store or its cache, nor any component.
package check
