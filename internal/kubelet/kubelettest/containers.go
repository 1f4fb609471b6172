package kubelettest

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

func (r *Runtime) CreateContainer(ctx context.Context, in string, config *runtimeapi.ContainerConfig, of *runtimeapi.PodSandboxConfig) (string, error) {
	if err := r.begin(ctx, "CreateContainer"); err != nil {
		return "", err
	}
	defer r.mu.Unlock()
	s := r.sandboxes[in]
	if s == nil || !s.ready {
		return "", notFound("sandbox", in)
	}
	image := r.images[named(config.Image.Image)]
	if image == nil || !image.Present {
		return "", notFound("image", config.Image.Image)
	}
	for _, c := range r.containers {
		if c.sandbox == in && c.config.Metadata.Name == config.Metadata.Name && c.config.Metadata.Attempt == config.Metadata.Attempt {
			return "", status.Errorf(codes.Unknown, "failed to reserve container name: name is reserved for %v", c.config.Metadata)
		}
	}
	id := r.id()
	r.containers[id] = &container{sandbox: in, config: config, createdAt: time.Now().UnixNano(), ended: make(chan struct{}), resources: config.GetLinux().GetResources()}
	r.called("CreateContainer", s.config.Metadata.Name, config.Metadata.Name)
	r.send(id, types.UID(config.Labels[cri.LabelPodUID]), runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return id, nil
}

func (r *Runtime) StartContainer(ctx context.Context, id string) error {
	if err := r.begin(ctx, "StartContainer"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	script := r.scripts[c.config.Metadata.Name]
	if script.StartErr != nil {
		c.state, c.exitCode, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, 128, "StartError"
		c.startedAt, c.finishedAt = 0, time.Now().UnixNano()
		close(c.ended)
		return script.StartErr
	}
	s := r.sandboxes[c.sandbox]
	if path := filepath.Join(s.config.LogDirectory, c.config.LogPath); s.config.LogDirectory != "" {
		if err := os.WriteFile(path, []byte(time.Now().UTC().Format(time.RFC3339Nano)+" stdout F hello\n"), 0o640); err != nil {
			return status.Errorf(codes.Unknown, "failed to create container loggers: %v", err)
		}
	}
	c.state, c.startedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	r.called("StartContainer", s.config.Metadata.Name, c.config.Metadata.Name)
	r.send(id, types.UID(c.config.Labels[cri.LabelPodUID]), runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if script.EndsItself {
		time.AfterFunc(script.Runs, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.exit(id, script.ExitCode, script.Reason)
		})
	}
	return nil
}

func (r *Runtime) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	if err := r.begin(ctx, "StopContainer"); err != nil {
		return err
	}
	c := r.containers[id]
	if c == nil {
		r.mu.Unlock()
		return nil
	}
	c.stops = append(c.stops, grace)
	takes, code := r.scripts[c.config.Metadata.Name].StopTakes, r.scripts[c.config.Metadata.Name].ExitCode
	r.called("StopContainer", r.sandboxes[c.sandbox].config.Metadata.Name, c.config.Metadata.Name)
	r.mu.Unlock()
	if takes > grace {
		takes, code = grace, 137
	}
	select {
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-c.ended:
	case <-time.After(takes):
		r.mu.Lock()
		r.exit(id, code, "")
		r.mu.Unlock()
	}
	return nil
}

func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	if err := r.begin(ctx, "RemoveContainer"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		r.exit(id, 137, "")
		delete(r.containers, id)
		r.called("RemoveContainer", r.sandboxes[c.sandbox].config.Metadata.Name, c.config.Metadata.Name)
	}
	return nil
}

func (r *Runtime) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	if err := r.begin(ctx, "ContainerStatus"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return nil, notFound("container", id)
	}
	s := &runtimeapi.ContainerStatus{Id: id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.createdAt, StartedAt: c.startedAt, FinishedAt: c.finishedAt,
		ExitCode: c.exitCode, Reason: c.reason, Image: &runtimeapi.ImageSpec{Image: c.config.Image.UserSpecifiedImage}, ImageRef: c.config.Image.Image, Labels: c.config.Labels,
		Annotations: c.config.Annotations, Mounts: c.config.Mounts, Resources: &runtimeapi.ContainerResources{Linux: c.resources}}
	if sandbox := r.sandboxes[c.sandbox]; sandbox != nil {
		s.LogPath = filepath.Join(sandbox.config.LogDirectory, c.config.LogPath)
	}
	return s, nil
}

func (r *Runtime) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	if err := r.begin(ctx, "ListContainers"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	var out []*runtimeapi.Container
	for id, c := range r.containers {
		if (filter.GetId() == "" || filter.GetId() == id) && (filter.GetPodSandboxId() == "" || filter.GetPodSandboxId() == c.sandbox) &&
			matches(c.config.Labels, filter.GetLabelSelector()) && (filter.GetState() == nil || filter.GetState().State == c.state) {
			out = append(out, &runtimeapi.Container{Id: id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, Image: c.config.Image, ImageRef: c.config.Image.Image,
				State: c.state, CreatedAt: c.createdAt, Labels: c.config.Labels, Annotations: c.config.Annotations})
		}
	}
	return out, nil
}

func (r *Runtime) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	if err := r.begin(ctx, "ListContainerStats"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	var out []*runtimeapi.ContainerStats
	for id, c := range r.containers {
		if matches(c.config.Labels, filter.GetLabelSelector()) {
			out = append(out, &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{Id: id, Metadata: c.config.Metadata, Labels: c.config.Labels}})
		}
	}
	return out, nil
}

func (r *Runtime) UpdateContainerResources(ctx context.Context, id string, to *runtimeapi.LinuxContainerResources) error {
	if err := r.begin(ctx, "UpdateContainerResources"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	c.resources = to
	r.called("UpdateContainerResources", r.sandboxes[c.sandbox].config.Metadata.Name, c.config.Metadata.Name)
	return nil
}

func (r *Runtime) ReopenContainerLog(ctx context.Context, id string) error {
	if err := r.begin(ctx, "ReopenContainerLog"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	c := r.containers[id]
	if c == nil {
		return notFound("container", id)
	}
	r.called("ReopenContainerLog", r.sandboxes[c.sandbox].config.Metadata.Name, c.config.Metadata.Name)
	f, err := os.OpenFile(filepath.Join(r.sandboxes[c.sandbox].config.LogDirectory, c.config.LogPath), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	return f.Close()
}

func (r *Runtime) ExecSync(ctx context.Context, id string, command []string, limit time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	if err := r.begin(ctx, "ExecSync"); err != nil {
		return nil, err
	}
	c, do := r.containers[id], r.execs
	r.mu.Unlock()
	if c == nil {
		return nil, notFound("container", id)
	}
	if do == nil {
		return &runtimeapi.ExecSyncResponse{}, nil
	}
	type result struct {
		response *runtimeapi.ExecSyncResponse
		err      error
	}
	done := make(chan result, 1)
	go func() {
		response, err := do(id, command)
		done <- result{response, err}
	}()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	select {
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case out := <-done:
		return out.response, out.err
	}
}
