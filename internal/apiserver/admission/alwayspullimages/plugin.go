package alwayspullimages

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/admission"
)

// New returns the plugin.
func New() admission.Plugin { return plugin{} }

type plugin struct{}

var pods = corev1.Resource("pods")

func (plugin) Name() string { return "AlwaysPullImages" }

func (plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Admit has the pod's images always pulled.
func (plugin) Admit(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || keepsImages(a, pod) {
		return nil
	}
	eachContainer(&pod.Spec, func(c *corev1.EphemeralContainerCommon, _ *field.Path) { c.ImagePullPolicy = corev1.PullAlways })
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			image.PullPolicy = corev1.PullAlways
		}
	}
	return nil
}

// Validate refuses a pod whose images are not always pulled.
func (plugin) Validate(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || keepsImages(a, pod) {
		return nil
	}
	var errs []error
	check := func(path *field.Path, policy corev1.PullPolicy) {
		if policy != corev1.PullAlways {
			errs = append(errs, a.Forbidden(field.NotSupported(path, policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	}
	eachContainer(&pod.Spec, func(c *corev1.EphemeralContainerCommon, path *field.Path) {
		check(path.Child("imagePullPolicy"), c.ImagePullPolicy)
	})
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil {
			check(field.NewPath("spec", "volumes").Index(i).Child("image", "pullPolicy"), image.PullPolicy)
		}
	}
	return utilerrors.NewAggregate(errs)
}

// keepsImages reports whether the write is an update of a pod whose containers have no image that none of them had before.
func keepsImages(a *admission.Attributes, pod *corev1.Pod) bool {
	old, ok := a.Old.(*corev1.Pod)
	if a.Operation != admission.Update || !ok {
		return false
	}
	known, keeps := map[string]bool{}, true
	eachContainer(&old.Spec, func(c *corev1.EphemeralContainerCommon, _ *field.Path) { known[c.Image] = true })
	eachContainer(&pod.Spec, func(c *corev1.EphemeralContainerCommon, _ *field.Path) { keeps = keeps && known[c.Image] })
	return keeps
}

// eachContainer calls do for each container of any kind.
func eachContainer(spec *corev1.PodSpec, do func(*corev1.EphemeralContainerCommon, *field.Path)) {
	path := field.NewPath("spec")
	for i := range spec.InitContainers {
		do((*corev1.EphemeralContainerCommon)(&spec.InitContainers[i]), path.Child("initContainers").Index(i))
	}
	for i := range spec.Containers {
		do((*corev1.EphemeralContainerCommon)(&spec.Containers[i]), path.Child("containers").Index(i))
	}
	for i := range spec.EphemeralContainers {
		do(&spec.EphemeralContainers[i].EphemeralContainerCommon, path.Child("ephemeralContainers").Index(i))
	}
}
