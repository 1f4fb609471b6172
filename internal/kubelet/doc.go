// Package kubelet runs the pods of a node: it starts and stops containers through the container runtime as the pods bound to the node say, and writes their
// status to the API.
//
// Each pod has a worker (worker.go). A worker is level-triggered: whatever wakes it (the API, the runtime's event stream, a probe, a timer), it observes the
// pod in the runtime (package cri), computes its status (package status), decides what to do next (decide.go, a pure function), does it (execute.go), and
// observes again. Nothing is remembered that could not be observed again, so a kubelet can be stopped and started at any point; containers keep running
// meanwhile.
//
// The files in the order of a pod's life: admit.go, sync.go, execute.go, pull.go, sandbox.go, container.go, start.go, resize.go, stop.go, terminate.go.
//
// The other rooms of the kubelet are packages below this one:
//
//   - nodestatus registers the node, reports its status and renews its lease; machine reads what the machine has.
//   - housekeeping collects garbage, removes orphans and evicts pods; eviction decides which; podlogs rotates logs.
//   - cri is the container runtime's interface and what is observed through it; image pulls images.
//   - status computes pod statuses and writes them; probe runs probes.
//   - volume, cgroup and environment make what a container gets from its node: volumes, cgroups, environment variables and DNS.
//   - server answers logs, exec, attach, port-forward, stats and metrics; stats measures for it.
//
// What the pod workers need of volumes, cgroups and host ports is in contracts.go; events.go finds changes in the runtime.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package kubelet
