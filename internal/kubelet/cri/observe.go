package cri

import (
	"context"
	"maps"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Observer reads the state of pods from the runtime. It caches what no longer changes: containers that have exited.
type Observer struct {
	runtime Runtime
	podsDir string

	mu     sync.Mutex
	exited map[types.UID]map[string]*Container // exited containers by pod and container id
}

// NewObserver returns an observer of a runtime. podsDir has a directory for each pod, named by its UID, with the files of termination messages in it.
func NewObserver(r Runtime, podsDir string) *Observer {
	return &Observer{runtime: r, podsDir: podsDir, exited: map[types.UID]map[string]*Container{}}
}

// Observe returns all that the runtime knows of a pod.
func (o *Observer) Observe(ctx context.Context, uid types.UID) (*Pod, error) {
	pod := &Pod{UID: uid}
	sandboxes, err := o.runtime.ListPodSandboxes(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: OfPod(uid)})
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes {
		status, err := o.runtime.PodSandboxStatus(ctx, s.Id)
		if IsNotFound(err) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		pod.Sandboxes = append(pod.Sandboxes, status)
	}
	containers, err := o.runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: OfPod(uid)})
	if err != nil {
		return nil, err
	}
	for _, listed := range containers {
		c, err := o.container(ctx, uid, listed)
		if IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pod.Containers = append(pod.Containers, c)
	}
	pod.sort()
	o.prune(uid, pod)
	return pod, nil
}

// container returns a container that was listed, with its status.
func (o *Observer) container(ctx context.Context, uid types.UID, listed *runtimeapi.Container) (*Container, error) {
	if c := o.cached(uid, listed.Id); c != nil {
		return c, nil
	}
	status, err := o.runtime.ContainerStatus(ctx, listed.Id)
	if err != nil {
		return nil, err
	}
	c := container(status, listed.PodSandboxId)
	if c.State == Exited {
		c.addTerminationMessage(status, filepath.Join(o.podsDir, string(uid)))
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.exited[uid] == nil {
			o.exited[uid] = map[string]*Container{}
		}
		o.exited[uid][c.ID] = c
	}
	return c, nil
}

// cached returns an exited container, nil if it is not cached.
func (o *Observer) cached(uid types.UID, id string) *Container {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.exited[uid][id]
}

// prune drops the containers that the runtime does not have any more from the cache.
func (o *Observer) prune(uid types.UID, pod *Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	present := map[string]bool{}
	for _, c := range pod.Containers {
		present[c.ID] = true
	}
	maps.DeleteFunc(o.exited[uid], func(id string, _ *Container) bool { return !present[id] })
	if len(o.exited[uid]) == 0 {
		delete(o.exited, uid)
	}
}

// Forget drops a pod from the cache.
func (o *Observer) Forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.exited, uid)
}
