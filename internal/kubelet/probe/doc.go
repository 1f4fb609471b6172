// Package probe asks containers whether they have started, live and are ready.
//
// Whoever runs pods tells a Manager how their containers are, every time that changes: Follow. For each probe of each running container a
// worker asks at its pace and counts; what is believed after enough equal answers is filled into the pod's status by the next Follow, and
// Options.Report says when that is worth doing. A container that fails its liveness or startup probe is not killed here: Failed says that
// it should be, and with what words.
//
// All that is known belongs to one life of a container, told by its id. A restarted container starts with nothing.
//
// # What differs from upstream
//
// Upstream looks at a new container at the next tick of a clock that has nothing to do with the container's start. Here probes count from
// the start. Startup and readiness probes are also asked early, in the first period, when only good answers count: a container that is
// ready after 0.2 s with a period of 10 s is Ready after 0.3 s, and none gets less time to start than failureThreshold periods.
package probe
