package initialresources

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/apiserver/admission"
	"skiff/internal/usage/history"
)

// Name is the name of the plugin.
const Name = "InitialResources"

const (
	annotation = "kubernetes.io/initial-resources"
	percentile = 90
	// fewest is how many numbers an estimate needs to be made of them, and one more.
	fewest = 30

	week  = 7 * 24 * time.Hour
	month = 30 * 24 * time.Hour
)

// History has what containers have used.
type History interface {
	Percentile(q history.Query, r history.Resource, percent int, now time.Time) (value, numbers uint64)
}

// New returns the plugin. Without a history it estimates nothing.
func New(h History) admission.Plugin { return &plugin{h} }

type plugin struct{ history History }

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return Name }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit sets the requests that the pod's containers lack, where they can be estimated.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || p.history == nil {
		return nil
	}
	now := time.Now()
	var set []string
	estimate := func(containers []corev1.Container, what string) {
		for i := range containers {
			if names := p.estimate(a.Namespace, &containers[i], now); len(names) > 0 {
				set = append(set, fmt.Sprintf("%s request for %s %s", strings.Join(names, ", "), what, containers[i].Name))
			}
		}
	}
	estimate(pod.Spec.InitContainers, "init container")
	estimate(pod.Spec.Containers, "container")
	if len(set) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[annotation] = "Initial Resources plugin set: " + strings.Join(set, "; ")
	}
	return nil
}

// estimate sets the requests of a container that it lacks, and returns their names.
func (p *plugin) estimate(namespace string, c *corev1.Container, now time.Time) (set []string) {
	for _, r := range []struct {
		name     corev1.ResourceName
		resource history.Resource
	}{{corev1.ResourceCPU, history.CPU}, {corev1.ResourceMemory, history.Memory}} {
		if _, requested := c.Resources.Requests[r.name]; requested {
			continue
		}
		if _, limited := c.Resources.Limits[r.name]; limited {
			continue
		}
		n, ok := p.past(namespace, c.Image, r.resource, now)
		if !ok {
			continue
		}
		quantity := resource.NewQuantity(int64(n), resource.DecimalSI)
		if r.resource == history.CPU {
			const nanosPerMilli = 1_000_000
			quantity = resource.NewMilliQuantity(int64((n+nanosPerMilli-1)/nanosPerMilli), resource.DecimalSI)
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[r.name] = *quantity
		set = append(set, string(r.name))
	}
	return set
}

// past returns what an image has needed: the first way of which there are enough numbers.
func (p *plugin) past(namespace, image string, r history.Resource, now time.Time) (uint64, bool) {
	for _, q := range ways(namespace, image) {
		if n, numbers := p.history.Percentile(q, r, percentile, now); numbers > fewest {
			return n, true
		}
	}
	return 0, false
}

// ways returns what an estimate may be made of, the best first.
func ways(namespace, image string) []history.Query {
	return []history.Query{
		{Namespace: namespace, Image: image, Within: week},
		{Namespace: namespace, Image: image, Within: month},
		{Image: image, Within: week},
		{Image: image, Within: month},
		{Image: image, AnyTag: true, Within: month},
	}
}
