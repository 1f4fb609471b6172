package podresizevalidator

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return &plugin{r} }

type plugin struct{ objects objects.Reader }

const (
	causeCapacity metav1.CauseType = "NodeCapacity"
	causePlatform metav1.CauseType = "UnsupportedPlatform"
)

var (
	pods  = corev1.Resource("pods")
	nodes = corev1.Resource("nodes")
)

func (*plugin) Name() string { return "PodResizeValidator" }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Operation == admission.Update && a.Subresource == "resize" && a.Is(pods)
}

// Validate refuses a resize that the pod's node can never grant.
func (p *plugin) Validate(_ context.Context, a *admission.Attributes) error {
	pod, isPod := a.Object.(*corev1.Pod)
	old, wasPod := a.Old.(*corev1.Pod)
	if !isPod || !wasPod || pod.Spec.NodeName == "" || pod.Generation == old.Generation { // the generation changes with the spec
		return nil
	}
	node, ok := p.objects.Get(nodes, "", pod.Spec.NodeName).(*corev1.Node)
	if !ok {
		return a.Forbidden(fmt.Errorf("node %q not found", pod.Spec.NodeName))
	}
	if system, ok := node.Labels[corev1.LabelOSStable]; ok && system != "linux" {
		return refuse(a, causePlatform, fmt.Errorf("pod resize is only supported on linux nodes, node %q is %q", node.Name, system))
	}
	if lacking := lacking(pod, node); len(lacking) > 0 {
		return refuse(a, causeCapacity, errors.New("node didn't have enough allocatable resources: "+strings.Join(lacking, "; ")))
	}
	return nil
}

// lacking returns what the pod requests more of than the node has.
func lacking(pod *corev1.Pod, node *corev1.Node) (texts []string) {
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	if asked, has := requests.Cpu(), node.Status.Allocatable.Cpu(); asked.Cmp(*has) > 0 {
		texts = append(texts, fmt.Sprintf("cpu, requested: %d, allocatable: %d", asked.MilliValue(), has.MilliValue()))
	}
	if asked, has := requests.Memory(), node.Status.Allocatable.Memory(); asked.Cmp(*has) > 0 {
		texts = append(texts, fmt.Sprintf("memory, requested: %d, allocatable: %d", asked.Value(), has.Value()))
	}
	return texts
}

// refuse returns the Forbidden error for a reason, with its cause.
func refuse(a *admission.Attributes, cause metav1.CauseType, reason error) error {
	err := a.Forbidden(reason)
	if status := (*apierrors.StatusError)(nil); errors.As(err, &status) {
		status.ErrStatus.Details.Causes = append(status.ErrStatus.Details.Causes, metav1.StatusCause{Type: cause})
	}
	return err
}
