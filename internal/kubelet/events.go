package kubelet

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

const (
	eventRetry = 500 * time.Millisecond
	// relistEvery is how often all that the runtime has is looked at, should an event have been missed.
	relistEvery = time.Minute
)

// watchEvents wakes the workers of pods whose containers started or ended. Nothing else is done about an event here: the runtime waits.
func (k *Kubelet) watchEvents(ctx context.Context) {
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
			k.log.Warn("the runtime's events ended; asking again", "error", err)
		}
		sleep(ctx, eventRetry)
	}
}

// wakeAll has all pods looked at again.
func (k *Kubelet) wakeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, w := range k.workers {
		w.wake()
	}
}

// relist looks for what belongs to no pod of the API, and at pods whose containers changed without anybody saying so.
func (k *Kubelet) relist(ctx context.Context) {
	known := map[string]string{} // state of containers and sandboxes, by id
	for ctx.Err() == nil {
		k.heart.beat()
		k.housekeeping.FindOrphans(ctx)
		k.findChanges(ctx, known)
		sleep(ctx, relistEvery)
	}
}

// findChanges wakes the workers of pods whose containers are not as they were.
func (k *Kubelet) findChanges(ctx context.Context, known map[string]string) {
	now := map[string]string{}
	see := func(id, state, uid string) {
		if now[id] = state; known[id] != state && len(known) > 0 {
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
		see(s.Id, s.State.String(), s.Labels[cri.LabelPodUID])
	}
	for _, c := range containers {
		see(c.Id, c.State.String(), c.Labels[cri.LabelPodUID])
	}
	clear(known)
	for id, state := range now {
		known[id] = state
	}
}

// knows says whether a pod has a worker.
func (k *Kubelet) knows(uid types.UID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.workers[uid] != nil
}
