// Package probe runs the startup, liveness and readiness probes of containers.
//
// Pod workers give a Manager the status of a pod every time it changes: Follow. For each probe of each running container a worker probes at its period; when
// the success or failure threshold is reached, the result is filled into the pod's status by the next Follow, and Options.Report says when that is worth
// doing. A container that fails its liveness or startup probe is not killed here: Failed returns why it should be.
//
// Results belong to one run of a container, identified by its id. A restarted container starts without results.
//
// # What differs from upstream
//
// Upstream first probes a container at the next tick of a ticker that is not aligned with the container's start. Here periods count from the start. Startup and readiness probes are
// also run early, within the first period, when only successes count: a container that is ready after 0.2 s with a period of 10 s is Ready after 0.3 s, and
// none gets less time to start than failureThreshold periods.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package probe
