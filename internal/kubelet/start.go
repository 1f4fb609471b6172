package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/image"
	"skiff/internal/kubelet/status"
)

// startContainers starts containers, one after another. callCtx is for calls that are not to be canceled half-way, ctx for the rest. An init container that
// cannot be started keeps those after it from being started; others do not.
func (w *worker) startContainers(callCtx, ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, list []starting, sandboxID string, config *runtimeapi.PodSandboxConfig,
	podIPs []string, images pulls) error {
	var errs []error
	var requeueAt time.Time // when the first image is to be pulled again
	for _, s := range list {
		if ctx.Err() != nil {
			return errInterrupted
		}
		failure := w.startContainer(callCtx, ctx, pod, runtime, s, sandboxID, config, podIPs, images)
		if failure == nil {
			delete(w.startFailures, s.Container.Name)
			continue
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
		if failure.Reason == "" {
			return errors.New(failure.Message)
		}
		w.startFailures[s.Container.Name] = *failure
		w.k.metrics.startErrors.WithLabelValues(string(s.Kind), failure.Reason).Inc()
		if retry := w.retryImage(s.Container, failure.Reason); !retry.IsZero() {
			requeueAt = earlier(requeueAt, retry)
		} else {
			errs = append(errs, fmt.Errorf("container %s: %s: %s", s.Container.Name, failure.Reason, failure.Message))
		}
		if s.Kind == initContainer {
			break
		}
	}
	if len(errs) == 0 && !requeueAt.IsZero() {
		return &retryAt{requeueAt}
	}
	return errors.Join(errs...)
}

// retryAt says that there is nothing to do before a time.
type retryAt struct{ until time.Time }

func (l *retryAt) Error() string { return "waiting until " + l.until.Format(time.TimeOnly) }

// When a pod is synced again whose image could not be pulled: soon after a failed pull, so that its status says ImagePullBackOff; later if its spec has to
// change first.
const (
	pullErrorRetry      = time.Second
	permanentImageRetry = 10 * time.Second
)

// retryImage returns when to try again to start a container whose image could not be pulled; zero if its start failed for another reason.
func (w *worker) retryImage(c *corev1.Container, reason string) time.Time {
	switch reason {
	case image.ErrImagePullBackOff:
		return w.k.images.Retry(w.uid, c.Image)
	case image.ErrImagePull, "RegistryUnavailable", "SignatureValidationFailed":
		return time.Now().Add(pullErrorRetry)
	case image.ErrImageNeverPull, image.ErrInvalidImageName:
		return time.Now().Add(permanentImageRetry)
	}
	return time.Time{}
}

// startContainer creates and starts a container, and runs its postStart hook. It returns why that failed, nil if it did not.
func (w *worker) startContainer(callCtx, ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, s starting, sandboxID string, config *runtimeapi.PodSandboxConfig,
	podIPs []string, images pulls) *status.Failure {
	k, c, about := w.k, s.Container, containerRef(pod, s.Container.Name)
	fail := func(reason string, err error) *status.Failure {
		if cri.IsUnavailable(err) { // the runtime does not answer, which says nothing about the container
			return &status.Failure{Message: cri.Message(err)}
		}
		if ctx.Err() == nil {
			k.recorder.Eventf(about, corev1.EventTypeWarning, "Failed", "Error: %v", cri.Message(err))
		}
		return &status.Failure{Reason: reason, Message: cri.Message(err)}
	}
	if !s.Ended.IsZero() {
		key := backOffKey(c)
		k.backOffs.set(w.uid, key, k.backOffs.get(w.uid)[key].next(s.Ended, time.Now()))
	}
	k.metrics.starts.WithLabelValues(string(s.Kind)).Inc()
	img, mounted, err := images.waitFor(ctx, c)
	var imageErr *image.Error
	switch {
	case ctx.Err() != nil:
		return &status.Failure{}
	case errors.As(err, &imageErr):
		k.recorder.Eventf(about, corev1.EventTypeWarning, "Failed", "Error: %s", imageErr.Reason)
		return &status.Failure{Reason: imageErr.Reason, Message: imageErr.Message}
	case err != nil:
		return fail(image.ErrImagePull, err)
	}
	target := ""
	if s.Target != "" {
		other := runtime.Find(s.Target)
		if other == nil {
			return fail(errCreateContainerConfig, fmt.Errorf("unable to find target container %v", s.Target))
		}
		target = other.ID
	}
	begun := time.Now()
	created, err := k.containerConfig(ctx, pod, s, w.restarts(pod, runtime, c.Name), img, podIPs, target)
	if err != nil {
		return fail(errCreateContainerConfig, err)
	}
	useImages(pod, created.Mounts, mounted)
	id, err := k.options.Runtime.CreateContainer(callCtx, sandboxID, created, config)
	k.stage(pod, StageCreate, c.Name, begun, err)
	if err != nil {
		return fail(errCreateContainer, err)
	}
	k.recorder.Event(about, corev1.EventTypeNormal, "Created", "Container created")
	begun = time.Now()
	err = k.options.Runtime.StartContainer(callCtx, id)
	k.stage(pod, StageStart, c.Name, begun, err)
	if err != nil {
		return fail(errRunContainer, err)
	}
	w.noteStart(c)
	k.recorder.Event(about, corev1.EventTypeNormal, "Started", "Container started")
	k.logs.Link(pod, c.Name, id, filepath.Join(config.LogDirectory, created.LogPath))
	return w.postStart(ctx, pod, c, id, podIPs)
}

// restarts returns how often a container was started before.
func (w *worker) restarts(pod *corev1.Pod, runtime *cri.Pod, name string) int {
	if last := runtime.Find(name); last != nil {
		return int(last.RestartCount) + 1
	}
	return w.k.logs.Starts(pod, name)
}

// postStart runs the postStart hook of a container, which is killed if that fails.
func (w *worker) postStart(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, podIPs []string) *status.Failure {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	message, err := w.k.runHook(ctx, pod, c, id, podIPs, c.Lifecycle.PostStart)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	w.k.recorder.Event(containerRef(pod, c.Name), corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed") // its output may have secrets
	if err := w.killContainer(ctx, pod, c, id, podIPs, "FailedPostStartHook", w.gracePeriod(pod), nil); err != nil {
		w.k.log.Warn("failed to stop a container whose postStart hook failed", "pod", podName(pod), "container", c.Name, "error", err)
	}
	return &status.Failure{Reason: errPostStartHook, Message: message}
}

// crashLoop returns the failure of a container that waits for its back-off.
func crashLoop(pod *corev1.Pod, wait waiting) status.Failure {
	return status.Failure{Reason: errCrashLoopBackOff,
		Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", wait.Delay, wait.Container.Name, podName(pod))}
}

// containerRef returns the reference that Events about a container have.
func containerRef(pod *corev1.Pod, name string) *corev1.ObjectReference {
	path := "spec.containers"
	if container(pod.Spec.InitContainers, name) != nil {
		path = "spec.initContainers"
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			path = "spec.ephemeralContainers"
		}
	}
	return &corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		FieldPath: path + "{" + strings.TrimSpace(name) + "}"}
}
