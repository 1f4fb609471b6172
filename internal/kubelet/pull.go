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

// pulls are the images that are being pulled for a pod: those of containers, and those that are volumes, by name.
type pulls struct{ containers, volumes map[string]*pulled }

// pulled is an image that is being pulled.
type pulled struct {
	done  chan struct{}
	image image.Image
	err   error
}

// wait waits for the image.
func (p *pulled) wait(ctx context.Context) (image.Image, error) {
	select {
	case <-p.done:
		return p.image, p.err
	case <-ctx.Done():
		return image.Image{}, ctx.Err()
	}
}

// pull pulls the images of the containers that are to be started, and those that are volumes.
func (w *worker) pull(ctx context.Context, wg *sync.WaitGroup, pod *corev1.Pod, p plan) pulls {
	out := pulls{map[string]*pulled{}, map[string]*pulled{}}
	if len(p.Start) == 0 {
		return out
	}
	secrets := sync.OnceValues(func() ([]*corev1.Secret, []string) { return w.k.pullSecrets(ctx, pod) })
	begin := func(r image.Request, name string) *pulled {
		one := &pulled{done: make(chan struct{})}
		wg.Go(func() {
			defer close(one.done)
			start := time.Now()
			var missing []string
			r.Pod, r.Sandbox = pod, pullConfig(pod)
			r.Secrets, missing = secrets()
			one.image, one.err = w.k.images.Ensure(ctx, r)
			w.tellMissing(pod, missing, one.err)
			w.excusing(start)
			w.k.stage(pod, StageImage, name, start, one.err)
		})
		return one
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

// tellMissing says that an image may not have been pulled because secrets were missing.
func (w *worker) tellMissing(pod *corev1.Pod, missing []string, err error) {
	var failed *image.Error
	if errors.As(err, &failed) && failed.Reason == image.ErrImagePull && len(missing) > 0 {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedToRetrieveImagePullSecret",
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", "))
	}
}

// pullConfig says for which pod an image is pulled.
func pullConfig(pod *corev1.Pod) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID)},
		Labels: cri.PodLabels(pod), Annotations: pod.Annotations}
}

// waitFor waits for the images that a container needs: its own, and those that it mounts, by volume.
func (p *pulls) waitFor(ctx context.Context, c *corev1.Container) (own image.Image, mounted map[string]image.Image, err error) {
	for _, m := range c.VolumeMounts {
		if v := p.volumes[m.Name]; v != nil {
			i, err := v.wait(ctx)
			if err != nil {
				return own, nil, err
			}
			if mounted == nil {
				mounted = map[string]image.Image{}
			}
			mounted[m.Name] = i
		}
	}
	own, err = p.containers[c.Name].wait(ctx)
	return own, mounted, err
}

// useImages puts the images that were pulled where mounts name them as the pod does.
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
