package kubelettest

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *Runtime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	if err := r.begin(ctx, "Version"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "v2.4.2", RuntimeApiVersion: "v1"}, nil
}

func (r *Runtime) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	if err := r.begin(ctx, "Status"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true}}}}, nil
}

func (r *Runtime) Config(ctx context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	if err := r.begin(ctx, "Config"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

func (r *Runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	if err := r.begin(ctx, "RunPodSandbox"); err != nil {
		return "", err
	}
	defer r.mu.Unlock()
	if handler != "" && handler != "runc" {
		return "", status.Errorf(codes.Unknown, "failed to get sandbox runtime: no runtime for %q is configured", handler)
	}
	for _, s := range r.sandboxes {
		if m := s.config.Metadata; m.Uid == config.Metadata.Uid && m.Attempt == config.Metadata.Attempt {
			return "", status.Errorf(codes.Unknown, "failed to reserve sandbox name: name is reserved for %v", m)
		}
	}
	id := r.id()
	r.nextIP++
	r.sandboxes[id] = &sandbox{config: config, handler: handler, ready: true, createdAt: time.Now().UnixNano(), ip: fmt.Sprintf("10.42.%d.%d", r.nextIP/250, r.nextIP%250+2)}
	r.called("RunPodSandbox", config.Metadata.Name)
	r.send(id, types.UID(config.Metadata.Uid), runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	return id, nil
}

func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	if err := r.begin(ctx, "StopPodSandbox"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	for cid, c := range r.containers {
		if c.sandbox == id {
			r.exit(cid, 137, "")
		}
	}
	if s.ready {
		s.ready = false
		r.called("StopPodSandbox", s.config.Metadata.Name)
		r.send(id, types.UID(s.config.Metadata.Uid), runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	}
	return nil
}

func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.begin(ctx, "RemovePodSandbox"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	for cid, c := range r.containers {
		if c.sandbox == id {
			r.exit(cid, 137, "")
			delete(r.containers, cid)
		}
	}
	delete(r.sandboxes, id)
	r.called("RemovePodSandbox", s.config.Metadata.Name)
	return nil
}

func (r *Runtime) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	if err := r.begin(ctx, "PodSandboxStatus"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil, notFound("sandbox", id)
	}
	out := &runtimeapi.PodSandboxStatus{Id: id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.createdAt, Labels: s.config.Labels,
		Annotations: s.config.Annotations, RuntimeHandler: s.handler, Network: &runtimeapi.PodSandboxNetworkStatus{},
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}}}
	if s.ready && out.Linux.Namespaces.Options.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		out.Network.Ip = s.ip
	}
	return out, nil
}

func (s *sandbox) state() runtimeapi.PodSandboxState {
	if s.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (r *Runtime) ListPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	if err := r.begin(ctx, "ListPodSandboxes"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for id, s := range r.sandboxes {
		if (filter.GetId() == "" || filter.GetId() == id) && matches(s.config.Labels, filter.GetLabelSelector()) && (filter.GetState() == nil || filter.GetState().State == s.state()) {
			out = append(out, &runtimeapi.PodSandbox{Id: id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.createdAt, Labels: s.config.Labels,
				Annotations: s.config.Annotations})
		}
	}
	return out, nil
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (r *Runtime) ListPodSandboxStats(ctx context.Context, _ *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	if err := r.begin(ctx, "ListPodSandboxStats"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	var out []*runtimeapi.PodSandboxStats
	for id, s := range r.sandboxes {
		if s.ready {
			memory := &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: r.memory[s.config.Metadata.Name]}}
			out = append(out, &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Id: id, Metadata: s.config.Metadata, Labels: s.config.Labels},
				Linux: &runtimeapi.LinuxPodSandboxStats{Memory: memory}})
		}
	}
	return out, nil
}

// SetMemory sets how much memory a pod uses.
func (r *Runtime) SetMemory(pod string, bytes uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory[pod] = bytes
}
