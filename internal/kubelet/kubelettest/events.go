package kubelettest

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type stream struct {
	events chan *runtimeapi.ContainerEventResponse
	broken chan struct{}
}

const buffered = 1000

// Events calls each for every container event.
func (r *Runtime) Events(ctx context.Context, connected func(), each func(*runtimeapi.ContainerEventResponse)) error {
	if err := r.begin(ctx, "Events"); err != nil {
		return err
	}
	s := &stream{events: make(chan *runtimeapi.ContainerEventResponse, buffered), broken: make(chan struct{})}
	r.streams[s] = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.streams, s)
	}()
	connected()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.broken:
			return status.Error(codes.Unavailable, "the stream broke")
		case e := <-s.events:
			each(e)
		}
	}
}

func (r *Runtime) breakStreams() {
	for s := range r.streams {
		close(s.broken)
		delete(r.streams, s)
	}
}

func (r *Runtime) send(id string, uid types.UID, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{ContainerId: id, ContainerEventType: kind,
		PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: string(uid)}}}
	for s := range r.streams {
		select {
		case s.events <- e:
		default: // nobody listens; a runtime would wait
		}
	}
}
