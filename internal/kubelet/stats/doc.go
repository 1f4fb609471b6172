// Package stats measures what the node and its pods use, for the kubelet's server: /stats/summary, /metrics/resource and /metrics/cadvisor. CPU time and
// memory are read from cgroups, networks and writable layers are asked of the runtime, disks are walked. Nothing is measured while nobody asks; a measurement
// is cached for a moment, so that many clients cost as much as one.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package stats
