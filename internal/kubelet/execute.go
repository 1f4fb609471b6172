package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/volume"
)

// errInterrupted says that a step was interrupted because the pod is to terminate or the kubelet is stopping. It is not a failure.
var errInterrupted = errors.New("interrupted: the pod is to terminate")

// execute does what decide has planned.
func (w *worker) execute(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, p plan) error {
	if p.Sandbox != nil && p.Sandbox.Replaces != "" {
		w.k.recorder.Event(pod, corev1.EventTypeNormal, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	if p.StopPod {
		if err := w.stopAndReport(ctx, pod, func() error { return w.stopPod(ctx, pod, runtime, w.gracePeriod(pod)) }); err != nil {
			return err
		}
	}
	for _, s := range p.Stop {
		if err := w.stopAndReport(ctx, pod, func() error { return w.stopContainer(ctx, pod, runtime, s) }); err != nil {
			return err
		}
	}
	if len(p.Update) > 0 {
		if err := w.resize(ctx, pod, p.Update); err != nil {
			return err
		}
	}
	for _, r := range p.Remove {
		if err := w.removeContainer(ctx, r); err != nil {
			return err
		}
	}
	if p.Sandbox == nil && len(p.Start) == 0 {
		return nil
	}
	err := w.start(ctx, pod, runtime, p)
	if errors.Is(err, errInterrupted) {
		return nil
	}
	return err
}

// start creates the pod's sandbox if the plan says so, and starts containers in it. Images are pulled, volumes set up and the cgroup created meanwhile.
func (w *worker) start(ctx context.Context, pod *corev1.Pod, runtime *cri.Pod, p plan) error {
	if err := w.k.runtime.NetworkError(); err != nil && !pod.Spec.HostNetwork {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "NetworkNotReady", "network is not ready: %v", err)
		return fmt.Errorf("network is not ready: %w", err)
	}
	inner, cancel := w.interruptible(ctx, false)
	defer cancel()
	var pulling sync.WaitGroup
	defer pulling.Wait()
	defer cancel() // before waiting for pulls that are not needed any more

	var parent string
	var cgroupErr error
	var cgroup sync.WaitGroup
	cgroup.Go(func() { parent, cgroupErr = w.k.options.Cgroups.Ensure(pod) })
	images := w.startPulls(inner, &pulling, pod, p)
	err := w.mountOnce(inner, pod)
	cgroup.Wait()
	switch {
	case inner.Err() != nil:
		return errInterrupted
	case err != nil:
		return err
	case cgroupErr != nil:
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedCreatePodContainer", "unable to ensure pod container exists: %v", cgroupErr)
		return cgroupErr
	}
	config, err := w.k.sandboxConfig(pod, p.Attempt, parent)
	if err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return err
	}
	if err := w.k.dra.Prepare(ctx, pod); err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedPrepareDynamicResources", "Failed to prepare dynamic resources: %v", err)
		return err
	}
	sandboxID, podIPs := p.In, runtime.IPs()
	if p.Sandbox != nil {
		if sandboxID, podIPs, err = w.runSandbox(ctx, pod, runtime, config); err != nil {
			return err
		}
	}
	if pod.Spec.HostNetwork {
		podIPs = w.k.options.NodeIPs
	}
	if err := w.setPorts(pod, podIPs); err != nil {
		return err
	}
	return w.startContainers(ctx, inner, pod, runtime, p.Start, sandboxID, config, podIPs, images)
}

// podIPs returns the IPs of a pod: those of its sandbox, or the node's for a pod on the host network, whose sandbox has none.
func (k *Kubelet) podIPs(runtime *cri.Pod) []string {
	if runtime.OnNodeNetwork() {
		return k.options.NodeIPs
	}
	return runtime.IPs()
}

// mountOnce sets up the pod's volumes, if that was not done yet.
func (w *worker) mountOnce(ctx context.Context, pod *corev1.Pod) error {
	if !w.mountedAt.IsZero() {
		return nil
	}
	start := time.Now()
	err := w.mount(ctx, pod)
	w.k.stage(pod, StageVolumes, "", start, err)
	return err
}

// mount sets up the pod's volumes, or refreshes them.
func (w *worker) mount(ctx context.Context, pod *corev1.Pod) error {
	if err := os.MkdirAll(w.k.podDir(pod), 0o750); err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "Failed", "error making pod data directories: %v", err)
		return err
	}
	err := w.k.options.Volumes.SetUp(ctx, pod)
	if err == nil {
		w.mountedAt, w.mountedPod, w.unmountedSince = time.Now(), pod, time.Time{}
		return nil
	}
	if ctx.Err() == nil {
		w.reportUnmounted(pod, volume.Failures(err))
	}
	return err
}

// longWithoutVolumes is how long a pod waits for its volumes until an Event says so, whatever it waits for.
const longWithoutVolumes = 2*time.Minute + 3*time.Second

// reportUnmounted records Events about the volumes that could not be set up.
func (w *worker) reportUnmounted(pod *corev1.Pod, failures []*volume.Failure) {
	var names []string
	for _, f := range failures {
		names = append(names, f.Volume)
		reason := "FailedMount"
		if f.Block {
			reason = "FailedMapVolume"
		}
		if !f.Waits {
			w.k.recorder.Event(pod, corev1.EventTypeWarning, reason, f.Error())
		}
	}
	if w.unmountedSince.IsZero() {
		w.unmountedSince = time.Now()
	}
	if time.Since(w.unmountedSince) < longWithoutVolumes {
		return
	}
	w.unmountedSince = time.Now()
	slices.Sort(names)
	w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedMount",
		"Unable to attach or mount volumes: unmounted volumes=%v, unattached volumes=[], failed to process volumes=[]: timed out waiting for the condition", names)
}

// runSandbox creates and starts a sandbox, and reports the pod's IPs soon. before is the pod as it was observed before.
func (w *worker) runSandbox(ctx context.Context, pod *corev1.Pod, before *cri.Pod, config *runtimeapi.PodSandboxConfig) (id string, podIPs []string, err error) {
	start := time.Now()
	defer func() {
		w.k.options.Stage(Stage{Pod: pod, Name: StageSandbox, Sandbox: id, Start: start, End: time.Now(), Err: err})
	}()
	w.hostPortsSet = false
	fail := func(err error) (string, []string, error) {
		if p, deleted := w.latest(); deleted || p.DeletionTimestamp != nil {
			return "", nil, errInterrupted // failures of a pod that is being deleted are not reported
		}
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: %v", err)
		return "", nil, err
	}
	if err := os.MkdirAll(config.LogDirectory, 0o755); err != nil {
		return fail(err)
	}
	handler, err := w.k.runtimeHandler(pod)
	if err != nil {
		return fail(err)
	}
	if id, err = w.k.options.Runtime.RunPodSandbox(ctx, config, handler); err != nil {
		return fail(err)
	}
	sandbox, err := w.k.options.Runtime.PodSandboxStatus(ctx, id)
	if err != nil {
		w.k.recorder.Eventf(pod, corev1.EventTypeWarning, "FailedPodSandBoxStatus", "Unable to get pod sandbox status: %v", err)
		return "", nil, err
	}
	runtime := before.With(sandbox)
	w.k.writer.SetSoon(pod, w.status(pod, runtime, false), true)
	return id, runtime.IPs(), nil
}

// runtimeHandler returns the handler of a pod's RuntimeClass, "" for the default.
func (k *Kubelet) runtimeHandler(pod *corev1.Pod) (string, error) {
	name := pod.Spec.RuntimeClassName
	if name == nil || *name == "" {
		return "", nil
	}
	class, err := k.runtimeClasses.Get(*name)
	if err != nil {
		return "", fmt.Errorf("failed to get RuntimeClass %q: %w", *name, err)
	}
	return class.Handler, nil
}
