package cri

import (
	"context"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *Client) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	r, err := call(ctx, 2*changeTimeout, c.runtime.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return r.GetPodSandboxId(), err
}

func (c *Client) StopPodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, changeTimeout, c.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return err
}

func (c *Client) RemovePodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, removeTimeout, c.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return err
}

func (c *Client) PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	r, err := call(ctx, readTimeout, c.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	return r.GetStatus(), err
}

func (c *Client) ListPodSandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	r, err := call(ctx, readTimeout, c.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	return r.GetItems(), err
}

func (c *Client) ListPodSandboxStats(ctx context.Context, filter *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	r, err := call(ctx, readTimeout, c.runtime.ListPodSandboxStats, &runtimeapi.ListPodSandboxStatsRequest{Filter: filter})
	return r.GetStats(), err
}

func (c *Client) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig, of *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := call(ctx, changeTimeout, c.runtime.CreateContainer, &runtimeapi.CreateContainerRequest{PodSandboxId: sandbox, Config: config, SandboxConfig: of})
	return r.GetContainerId(), err
}

func (c *Client) StartContainer(ctx context.Context, id string) error {
	_, err := call(ctx, changeTimeout, c.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (c *Client) StopContainer(ctx context.Context, id string, grace time.Duration) error {
	request := &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64((grace + time.Second - 1) / time.Second)}
	_, err := call(ctx, grace+stopMargin, c.runtime.StopContainer, request)
	return err
}

func (c *Client) RemoveContainer(ctx context.Context, id string) error {
	_, err := call(ctx, removeTimeout, c.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

func (c *Client) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	r, err := call(ctx, readTimeout, c.runtime.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return r.GetStatus(), err
}

func (c *Client) ListContainers(ctx context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r, err := call(ctx, readTimeout, c.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: filter})
	return r.GetContainers(), err
}

func (c *Client) ListContainerStats(ctx context.Context, filter *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	r, err := call(ctx, readTimeout, c.runtime.ListContainerStats, &runtimeapi.ListContainerStatsRequest{Filter: filter})
	return r.GetStats(), err
}

func (c *Client) UpdateContainerResources(ctx context.Context, id string, to *runtimeapi.LinuxContainerResources) error {
	_, err := call(ctx, readTimeout, c.runtime.UpdateContainerResources, &runtimeapi.UpdateContainerResourcesRequest{ContainerId: id, Linux: to})
	return err
}

func (c *Client) ReopenContainerLog(ctx context.Context, id string) error {
	_, err := call(ctx, readTimeout, c.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

func (c *Client) ExecSync(ctx context.Context, id string, command []string, limit time.Duration) (*runtimeapi.ExecSyncResponse, error) {
	seconds, timeout := int64((limit+time.Second-1)/time.Second), limit+execMargin
	if limit == 0 {
		timeout = execTimeout
	}
	return call(ctx, timeout, c.runtime.ExecSync, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: seconds})
}

func (c *Client) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, of *runtimeapi.PodSandboxConfig) (string, error) {
	r, err := call(ctx, pullTimeout, c.images.PullImage, &runtimeapi.PullImageRequest{Image: image, Auth: auth, SandboxConfig: of})
	return r.GetImageRef(), err
}

func (c *Client) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	r, err := call(ctx, readTimeout, c.images.ImageStatus, &runtimeapi.ImageStatusRequest{Image: image})
	return r.GetImage(), err
}

func (c *Client) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	r, err := call(ctx, readTimeout, c.images.ListImages, &runtimeapi.ListImagesRequest{})
	return r.GetImages(), err
}

func (c *Client) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	_, err := call(ctx, removeTimeout, c.images.RemoveImage, &runtimeapi.RemoveImageRequest{Image: image})
	return err
}

func (c *Client) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, readTimeout, c.images.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}

func (c *Client) Exec(ctx context.Context, request *runtimeapi.ExecRequest) (string, error) {
	r, err := call(ctx, readTimeout, c.runtime.Exec, request)
	return r.GetUrl(), err
}

func (c *Client) Attach(ctx context.Context, request *runtimeapi.AttachRequest) (string, error) {
	r, err := call(ctx, readTimeout, c.runtime.Attach, request)
	return r.GetUrl(), err
}

func (c *Client) PortForward(ctx context.Context, request *runtimeapi.PortForwardRequest) (string, error) {
	r, err := call(ctx, readTimeout, c.runtime.PortForward, request)
	return r.GetUrl(), err
}
