// Package kubelet runs the pods of a node: it registers the node with the API, starts and stops containers through the container runtime as the pods
// that are bound to the node say, and reports how they are.
//
// Each pod has a worker of its own (worker.go). A worker is level-triggered: whatever wakes it (the API, the runtime's event stream, a probe, a timer),
// it looks at all there is (package cri), works out the pod's status (package status) and what to do next (decide.go, a pure function), does it, and
// looks again. Nothing is remembered that could not be found out again, so a kubelet can be stopped and started at any point; containers go on
// meanwhile. What is found on the node and belongs to no pod of the API is ended and removed (events.go).
//
// In the order of a pod's life: admit.go, sync.go, carryout.go, pull.go, sandbox.go, container.go, start.go, resize.go, stop.go, finish.go. Beside
// that: node.go and lease.go for the node itself, garbage.go and logs.go for what piles up, evict.go for when it is too much.
//
// It reaches the API through package client alone. Volumes, control groups, probes and the node's network are other packages'; what is asked of
// them is in contracts.go.
package kubelet
