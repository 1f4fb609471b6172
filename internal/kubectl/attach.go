package kubectl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/kubectl/pkg/cmd/attach"
	"k8s.io/kubectl/pkg/cmd/exec"
	"k8s.io/kubectl/pkg/cmd/logs"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/polymorphichelpers"
	"k8s.io/kubectl/pkg/util/interrupt"
	"k8s.io/kubectl/pkg/util/podutils"
	uexec "k8s.io/utils/exec"
)

// attachTo attaches the terminal to the first pod of the created object once it runs, and returns an error with the exit code of its container.
func (r *run) attachTo(cmd *cobra.Command, obj runtime.Object) error {
	config, err := r.factory.ToRESTConfig()
	if err != nil {
		return err
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pod, err := polymorphichelpers.AttachablePodForObjectFn(r.factory, obj, r.timeout)
	if err != nil {
		return err
	}
	if pod, err = r.await(api, pod, running); err != nil {
		return err
	}
	if !ended(pod) {
		options := &attach.AttachOptions{
			StreamOptions: exec.StreamOptions{IOStreams: r.IOStreams, Stdin: r.what.stdin, TTY: r.what.tty, Quiet: r.quiet,
				Namespace: pod.Namespace, PodName: pod.Name},
			CommandName: cmd.Parent().CommandPath() + " attach", GetPodTimeout: r.timeout, Pod: pod, Config: config,
			Attach: &attach.DefaultRemoteAttach{}, AttachFunc: attach.DefaultAttachFunc, DetachKeys: cmdutil.GetFlagString(cmd, "detach-keys"),
		}
		if err = options.Run(); err != nil {
			fmt.Fprintf(r.ErrOut, "warning: couldn't attach to pod/%s, falling back to streaming logs: %v\n", pod.Name, err)
		}
	}
	if ended(pod) || err != nil {
		if err := r.logs(pod, err != nil); err != nil {
			return err
		}
	}
	if r.what.leaveOpen || r.plan.restart == corev1.RestartPolicyAlways {
		return nil // it goes on, with or without us
	}
	if pod, err = r.await(api, pod, done(r.plan.restart)); err != nil {
		return err
	}
	return outcome(pod)
}

// await waits until a condition holds for a pod, and fails if the pod is deleted.
func (r *run) await(api kubernetes.Interface, pod *corev1.Pod, condition watchtools.ConditionFunc) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
	defer cancel()
	selector := fields.OneTermEqualSelector("metadata.name", pod.Name).String()
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = selector
			return api.CoreV1().Pods(pod.Namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = selector
			return api.CoreV1().Pods(pod.Namespace).Watch(ctx, o)
		},
	}
	err := interrupt.New(nil, cancel).Run(func() error {
		event, err := watchtools.UntilWithSync(ctx, source, &corev1.Pod{}, nil, condition)
		if event != nil {
			pod = event.Object.(*corev1.Pod)
		}
		return err
	})
	return pod, err
}

// running holds when a pod can be attached to, or has ended already.
func running(e watch.Event) (bool, error) {
	pod, err := of(e)
	if err != nil {
		return false, err
	}
	return ended(pod) || pod.Status.Phase == corev1.PodRunning && podutils.IsPodReady(pod), nil
}

// done holds when a pod with this restart policy has ended for good.
func done(restart corev1.RestartPolicy) watchtools.ConditionFunc {
	return func(e watch.Event) (bool, error) {
		pod, err := of(e)
		if err != nil {
			return false, err
		}
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed && restart == corev1.RestartPolicyNever, nil
	}
}

func of(e watch.Event) (*corev1.Pod, error) {
	pod, ok := e.Object.(*corev1.Pod)
	switch {
	case !ok:
		return nil, fmt.Errorf("watching the pod: unexpected %T", e.Object)
	case e.Type == watch.Deleted:
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), pod.Name)
	}
	return pod, nil
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// logs prints the log of a pod, and follows it if asked to.
func (r *run) logs(pod *corev1.Pod, follow bool) error {
	requests, err := polymorphichelpers.LogsForObjectFn(r.factory, pod, &corev1.PodLogOptions{Container: pod.Spec.Containers[0].Name, Follow: follow}, 20*time.Second, false)
	if err != nil {
		return err
	}
	var errs []error
	for _, request := range requests {
		errs = append(errs, logs.DefaultConsumeRequest(context.Background(), request, r.Out))
	}
	return errors.Join(errs...)
}

// outcome returns the error of a pod that has failed, with the exit code of its container.
func outcome(pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodSucceeded {
		return nil
	}
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
			return uexec.CodeExitError{Code: int(t.ExitCode), Err: fmt.Errorf("pod %s/%s terminated (%s)\n%s", pod.Namespace, pod.Name, t.Reason, t.Message)}
		}
	}
	return fmt.Errorf("pod %s/%s failed with unknown exit code", pod.Namespace, pod.Name)
}
