package kubelettest

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// named returns the name under which an image is known: a reference, or its id.
func named(image string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(image, "sha256:"), "@")
	return name
}

func refOf(name string) string { return "sha256:" + name }

func (r *Runtime) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	if err := r.begin(ctx, "PullImage"); err != nil {
		return "", err
	}
	defer r.mu.Unlock()
	i := r.images[named(image.Image)]
	r.called("PullImage", image.Image)
	switch {
	case i == nil:
		return "", status.Errorf(codes.NotFound, "failed to pull and unpack image %q: failed to resolve reference %q: not found", image.Image, image.Image)
	case i.Err != nil:
		return "", i.Err
	case i.Secret != "" && i.Secret != auth.GetPassword():
		return "", status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to authorize: unexpected status: 401 Unauthorized", image.Image)
	}
	i.Present = true
	return refOf(i.Name), nil
}

func (r *Runtime) ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	if err := r.begin(ctx, "ImageStatus"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	i := r.images[named(image.Image)]
	if i == nil || !i.Present {
		return nil, nil
	}
	return i.api(), nil
}

func (i *Image) api() *runtimeapi.Image {
	out := &runtimeapi.Image{Id: refOf(i.Name), RepoTags: []string{i.Name}, Size: i.Size, Username: i.User, Spec: &runtimeapi.ImageSpec{Image: i.Name}}
	if i.UID != nil {
		out.Uid = &runtimeapi.Int64Value{Value: *i.UID}
	}
	return out
}

func (r *Runtime) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	if err := r.begin(ctx, "ListImages"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	var out []*runtimeapi.Image
	for _, i := range r.images {
		if i.Present {
			out = append(out, i.api())
		}
	}
	return out, nil
}

func (r *Runtime) RemoveImage(ctx context.Context, image *runtimeapi.ImageSpec) error {
	if err := r.begin(ctx, "RemoveImage"); err != nil {
		return err
	}
	defer r.mu.Unlock()
	if i := r.images[named(image.Image)]; i != nil {
		i.Present = false
		r.called("RemoveImage", image.Image)
	}
	return nil
}

func (r *Runtime) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	if err := r.begin(ctx, "ImageFsInfo"); err != nil {
		return nil, err
	}
	defer r.mu.Unlock()
	var used uint64
	for _, i := range r.images {
		if i.Present {
			used += i.Size
		}
	}
	usage := &runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"}, UsedBytes: &runtimeapi.UInt64Value{Value: used}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{usage}}, nil
}

func (r *Runtime) Exec(context.Context, *runtimeapi.ExecRequest) (string, error) {
	return "", status.Error(codes.Unimplemented, "there is nothing to exec in")
}

func (r *Runtime) Attach(context.Context, *runtimeapi.AttachRequest) (string, error) {
	return "", status.Error(codes.Unimplemented, "there is nothing to attach to")
}

func (r *Runtime) PortForward(context.Context, *runtimeapi.PortForwardRequest) (string, error) {
	return "", status.Error(codes.Unimplemented, "there is nothing to forward to")
}
