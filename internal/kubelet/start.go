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

// startContainers starts containers, one after another. calls is for what is not to be broken off half-way, ctx for the rest. An init container that
// cannot be started keeps those after it from being started; others do not.
func (w *worker) startContainers(calls, ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, list []starting, in string, config *runtimeapi.PodSandboxConfig,
	ips []string, images pulls) error {
	var errs []error
	var again time.Time // if all there is to wait for is images
	for _, s := range list {
		if ctx.Err() != nil {
			return errInterrupted
		}
		failure := w.startContainer(calls, ctx, pod, runtime, s, in, config, ips, images)
		if failure == nil {
			delete(w.failures, s.Container.Name)
			continue
		}
		if ctx.Err() != nil {
			return errInterrupted
		}
		if failure.Reason == "" {
			return errors.New(failure.Message)
		}
		w.failures[s.Container.Name] = *failure
		w.k.metrics.startErrors.WithLabelValues(string(s.Kind), failure.Reason).Inc()
		if retry := w.retryImage(s.Container, failure.Reason); !retry.IsZero() {
			again = earlier(again, retry)
		} else {
			errs = append(errs, fmt.Errorf("container %s: %s: %s", s.Container.Name, failure.Reason, failure.Message))
		}
		if s.Kind == initContainer {
			break
		}
	}
	if len(errs) == 0 && !again.IsZero() {
		return &later{again}
	}
	return errors.Join(errs...)
}

// later is that there is nothing to be done before a time.
type later struct{ until time.Time }

func (l *later) Error() string { return "waiting until " + l.until.Format(time.TimeOnly) }

// How soon a pod is looked at again whose image could not be pulled: once soon, to say that it waits now; and if it makes no sense to wait.
const (
	soonAfterPull = time.Second
	hopelessImage = 10 * time.Second
)

// retryImage is when to try again to start a container whose image is the trouble; zero if that is something else.
func (w *worker) retryImage(c *corev1.Container, reason string) time.Time {
	switch reason {
	case image.ErrImagePullBackOff:
		return w.k.images.Retry(w.uid, c.Image)
	case image.ErrImagePull, "RegistryUnavailable", "SignatureValidationFailed":
		return time.Now().Add(soonAfterPull)
	case image.ErrImageNeverPull, image.ErrInvalidImageName:
		return time.Now().Add(hopelessImage)
	}
	return time.Time{}
}

// startContainer starts a container, or says why it cannot be.
func (w *worker) startContainer(calls, ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, s starting, in string, config *runtimeapi.PodSandboxConfig,
	ips []string, images pulls) *status.Failure {
	k, c, about := w.k, s.Container, containerRef(pod, s.Container.Name)
	fail := func(reason string, err error) *status.Failure {
		if cri.IsUnavailable(err) { // that says nothing about the container
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
	var notThere *image.Error
	switch {
	case ctx.Err() != nil:
		return &status.Failure{}
	case errors.As(err, &notThere):
		k.recorder.Eventf(about, corev1.EventTypeWarning, "Failed", "Error: %s", notThere.Reason)
		return &status.Failure{Reason: notThere.Reason, Message: notThere.Message}
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
	made, err := k.containerConfig(ctx, pod, s, w.restarts(pod, runtime, c.Name), img, ips, target)
	if err != nil {
		return fail(errCreateContainerConfig, err)
	}
	useImages(pod, made.Mounts, mounted)
	id, err := k.options.Runtime.CreateContainer(calls, in, made, config)
	k.stage(pod, StageCreate, c.Name, begun, err)
	if err != nil {
		return fail(errCreateContainer, err)
	}
	k.recorder.Event(about, corev1.EventTypeNormal, "Created", "Container created")
	begun = time.Now()
	err = k.options.Runtime.StartContainer(calls, id)
	k.stage(pod, StageStart, c.Name, begun, err)
	if err != nil {
		return fail(errRunContainer, err)
	}
	w.launch(c)
	k.recorder.Event(about, corev1.EventTypeNormal, "Started", "Container started")
	k.logs.Link(pod, c.Name, id, filepath.Join(config.LogDirectory, made.LogPath))
	return w.postStart(ctx, pod, c, id, ips)
}

// restarts is how often a container was started before.
func (w *worker) restarts(pod *corev1.Pod, runtime *cri.Pod, name string) int {
	if last := runtime.Find(name); last != nil {
		return int(last.RestartCount) + 1
	}
	return w.k.logs.Starts(pod, name)
}

// postStart runs what is to be run when a container has started. Until that has succeeded, the container does not count as running.
func (w *worker) postStart(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, ips []string) *status.Failure {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	message, err := w.k.runHook(ctx, pod, c, id, ips, c.Lifecycle.PostStart)
	if err == nil || ctx.Err() != nil {
		return nil
	}
	w.k.recorder.Event(containerRef(pod, c.Name), corev1.EventTypeWarning, "FailedPostStartHook", "PostStartHook failed") // what it said may be a secret
	if err := w.killContainer(ctx, pod, c, id, ips, "FailedPostStartHook", w.graceOf(pod), nil); err != nil {
		w.k.log.Warn("a container whose postStart hook failed could not be stopped", "pod", podName(pod), "container", c.Name, "error", err)
	}
	return &status.Failure{Reason: errPostStartHook, Message: message}
}

// crashLoop says that a container waits because it keeps ending.
func crashLoop(pod *corev1.Pod, wait waiting) status.Failure {
	return status.Failure{Reason: errCrashLoopBackOff,
		Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", wait.Delay, wait.Container.Name, podName(pod))}
}

// containerRef is what events about a container are about.
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
