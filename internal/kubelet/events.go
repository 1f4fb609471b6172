package kubelet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

const (
	// eventRetry is the pause before the runtime's event stream is opened again.
	eventRetry = 500 * time.Millisecond
	// relistInterval is how often all sandboxes and containers are listed, in case an event was missed.
	relistInterval = time.Minute
)

// watchRuntimeEvents wakes the workers of pods whose containers started or exited. It does nothing else with an event: the runtime waits for it.
func (k *Kubelet) watchRuntimeEvents(ctx context.Context) {
	for ctx.Err() == nil {
		err := k.options.Runtime.Events(ctx, k.wakeAll, func(e *runtimeapi.ContainerEventResponse) {
			if uid := e.GetPodSandboxStatus().GetMetadata().GetUid(); uid != "" {
				k.wake(types.UID(uid))
			}
		})
		if ctx.Err() != nil {
			return
		}
		if !cri.IsUnavailable(err) {
			k.log.Warn("the runtime's event stream ended; opening it again", "error", err)
		}
		sleep(ctx, eventRetry)
	}
}

// wakeAll wakes the workers of all pods.
func (k *Kubelet) wakeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		w.wake()
	}
}

// relist removes orphans, and wakes the workers of pods whose containers changed without an event, every relistInterval until ctx ends.
func (k *Kubelet) relist(ctx context.Context) {
	known := map[string]string{} // the state of each container and sandbox at the last relist, by id
	for ctx.Err() == nil {
		k.relistMonitor.mark()
		k.housekeeping.FindOrphans(ctx)
		k.wakeChanged(ctx, known)
		sleep(ctx, relistInterval)
	}
}

// wakeChanged wakes the workers of pods whose sandboxes or containers have another state than at the last relist, and updates known.
func (k *Kubelet) wakeChanged(ctx context.Context, known map[string]string) {
	current := map[string]string{}
	observe := func(id, state, uid string) {
		if current[id] = state; known[id] != state && len(known) > 0 {
			k.wake(types.UID(uid))
		}
	}
	sandboxes, err := k.options.Runtime.ListPodSandboxes(ctx, nil)
	if err != nil {
		return
	}
	containers, err := k.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	for _, s := range sandboxes {
		observe(s.Id, s.State.String(), s.Labels[cri.LabelPodUID])
	}
	for _, c := range containers {
		observe(c.Id, c.State.String(), c.Labels[cri.LabelPodUID])
	}
	clear(known)
	for id, state := range current {
		known[id] = state
	}
}

// hasWorker reports whether a pod has a worker.
func (k *Kubelet) hasWorker(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers[uid] != nil
}
