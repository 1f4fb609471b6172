package cri

import (
	"context"
	"maps"
	"path/filepath"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Observer looks at pods. It remembers what no longer changes: runs of containers that have ended.
type Observer struct {
	runtime Runtime
	podsDir string

	mu    sync.Mutex
	ended map[types.UID]map[string]*Container // by the container's id
}

// NewObserver makes an observer of what a runtime runs. podsDir has a directory for each pod, named by its UID, with the files of termination
// messages in it.
func NewObserver(r Runtime, podsDir string) *Observer {
	return &Observer{runtime: r, podsDir: podsDir, ended: map[types.UID]map[string]*Container{}}
}

// Look asks the runtime for all it knows of a pod.
func (o *Observer) Look(ctx context.Context, uid types.UID) (*Pod, error) {
	pod := &Pod{UID: uid}
	sandboxes, err := o.runtime.ListPodSandboxes(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: OfPod(uid)})
	if err != nil {
		return nil, err
	}
	for _, s := range sandboxes {
		status, err := o.runtime.PodSandboxStatus(ctx, s.Id)
		if IsNotFound(err) {
			continue // it went away just now
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

func (o *Observer) container(ctx context.Context, uid types.UID, listed *runtimeapi.Container) (*Container, error) {
	if c := o.remembered(uid, listed.Id); c != nil {
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
		if o.ended[uid] == nil {
			o.ended[uid] = map[string]*Container{}
		}
		o.ended[uid][c.ID] = c
	}
	return c, nil
}

func (o *Observer) remembered(uid types.UID, id string) *Container {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended[uid][id]
}

// prune forgets containers that are gone.
func (o *Observer) prune(uid types.UID, pod *Pod) {
	o.mu.Lock()
	defer o.mu.Unlock()
	left := map[string]bool{}
	for _, c := range pod.Containers {
		left[c.ID] = true
	}
	maps.DeleteFunc(o.ended[uid], func(id string, _ *Container) bool { return !left[id] })
	if len(o.ended[uid]) == 0 {
		delete(o.ended, uid)
	}
}

// Forget forgets a pod.
func (o *Observer) Forget(uid types.UID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.ended, uid)
}
