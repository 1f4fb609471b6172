// Package stats measures what the node and its pods use, for whoever asks the kubelet's server: /stats/summary, /metrics/resource and
// /metrics/cadvisor. Processor time and memory are read from control groups, networks and writable layers are asked of the runtime, disks are
// looked at. Nothing runs while nobody asks: what is read is kept for a moment, so that many who ask cost as much as one.
package stats
