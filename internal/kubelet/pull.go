package kubelet

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/image"
)

// pulls are the images that are being pulled for a pod, by the names of containers and of image volumes.
type pulls struct{ containers, volumes map[string]*pull }

// pull is an image that is being pulled.
type pull struct {
	done  chan struct{} // closed when image and err are set
	image image.Image
	err   error
}

// wait returns the image once it is there.
func (p *pull) wait(ctx context.Context) (image.Image, error) {
	select {
	case <-p.done:
		return p.image, p.err
	case <-ctx.Done():
		return image.Image{}, ctx.Err()
	}
}

// startPulls starts to pull the images of the containers to start, and the image volumes. wg waits for them.
func (w *worker) startPulls(ctx context.Context, wg *sync.WaitGroup, pod *corev1.Pod, p plan) pulls {
	out := pulls{map[string]*pull{}, map[string]*pull{}}
	if len(p.Start) == 0 {
		return out
	}
	secrets := sync.OnceValues(func() ([]*corev1.Secret, []string) { return w.k.pullSecrets(ctx, pod) })
	begin := func(r image.Request, name string) *pull {
		p := &pull{done: make(chan struct{})}
		wg.Go(func() {
			defer close(p.done)
			start := time.Now()
			var missing []string
			r.Pod, r.Sandbox = pod, pullConfig(pod)
			r.Secrets, missing = secrets()
			p.image, p.err = w.k.images.Ensure(ctx, r)
			w.recordMissingSecrets(pod, missing, p.err)
			w.excludeFromSLI(start)
			w.k.stage(pod, StageImage, name, start, p.err)
		})
		return p
	}
	for _, s := range p.Start {
		c := s.Container
		out.containers[c.Name] = begin(image.Request{About: containerRef(pod, c.Name), Image: c.Image, Policy: c.ImagePullPolicy}, c.Name)
	}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			out.volumes[v.Name] = begin(image.Request{About: pod, Image: v.Image.Reference, Policy: v.Image.PullPolicy}, "")
		}
	}
	return out
}

// recordMissingSecrets records an Event if an image could not be pulled and image pull secrets were missing.
func (w *worker) recordMissingSecrets(pod *corev1.Pod, missing []string, err error) {
	var failed *image.Error
	if errors.As(err, &failed) && failed.Reason == image.ErrImagePull && len(missing) > 0 {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
}

// pullConfig returns the sandbox configuration that tells the runtime for which pod an image is pulled.
func pullConfig(pod *corev1.Pod) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Labels: cri.PodLabels(pod), Annotations: pod.Annotations}
}

// waitFor returns the image of a container and those that it mounts, by volume, once they are there.
func (p *pulls) waitFor(ctx context.Context, c *corev1.Container) (img image.Image, mounted map[string]image.Image, err error) {
	for _, m := range c.VolumeMounts {
		if v := p.volumes[m.Name]; v != nil {
			i, err := v.wait(ctx)
			if err != nil {
				return img, nil, err
			}
			if mounted == nil {
				mounted = map[string]image.Image{}
			}
			mounted[m.Name] = i
		}
	}
	img, err = p.containers[c.Name].wait(ctx)
	return img, mounted, err
}

// useImages replaces the image references of image volume mounts with the images that were pulled.
func useImages(pod *corev1.Pod, mounts []*runtimeapi.Mount, pulled map[string]image.Image) {
	refs := map[string]string{}
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Image != nil {
			if i, ok := pulled[v.Name]; ok {
				refs[v.Image.Reference] = i.Ref
			}
		}
	}
	for _, m := range mounts {
		if m.Image != nil {
			m.Image = &runtimeapi.ImageSpec{Image: refs[m.Image.Image], UserSpecifiedImage: m.Image.Image, Annotations: pod.Annotations}
		}
	}
}
