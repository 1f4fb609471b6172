package initialresources

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/internal/apiserver/admission"
	"skiff/internal/usage/history"
)

// Name is the name of the plugin in flags and in configuration files.
const Name = "InitialResources"

const (
	annotation = "kubernetes.io/initial-resources"
	// fewest is how many numbers an estimate needs to be made of them, and one more.
	fewest = 30
)

// resources are those that are estimated.
var resources = [...]struct {
	name     corev1.ResourceName
	resource history.Resource
	least    uint64 // the lowest limit that is set: what was idle so far must be able to start
}{
	{corev1.ResourceCPU, history.CPU, 100_000_000},
	{corev1.ResourceMemory, history.Memory, 64 << 20},
}

// History has what containers have used.
type History interface {
	Percentile(q history.Query, r history.Resource, percent int, now time.Time) (value, numbers uint64)
}

// New returns the plugin. Without a history it estimates nothing.
func New(h History, c Config) admission.Plugin { return &plugin{h, c} }

type plugin struct {
	history History
	config  Config
}

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return Name }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && a.Subresource == "" && a.Operation == admission.Create
}

// Admit sets the requests and limits that the pod's containers lack, where they can be estimated.
func (p *plugin) Admit(_ context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || p.history == nil {
		return nil
	}
	now := time.Now()
	var set []string
	estimate := func(containers []corev1.Container, what string) {
		for i := range containers {
			requests, limits := p.estimate(a.Namespace, &containers[i], now)
			if len(requests) > 0 {
				set = append(set, fmt.Sprintf("%s request for %s %s", strings.Join(requests, ", "), what, containers[i].Name))
			}
			if len(limits) > 0 {
				set = append(set, fmt.Sprintf("%s limit for %s %s", strings.Join(limits, ", "), what, containers[i].Name))
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

// estimate sets the requests and limits of a container for the resources of which it has neither, and returns their names.
func (p *plugin) estimate(namespace string, c *corev1.Container, now time.Time) (requests, limits []string) {
	for _, r := range resources {
		if _, requested := c.Resources.Requests[r.name]; requested {
			continue
		}
		if _, limited := c.Resources.Limits[r.name]; limited {
			continue
		}
		q, request, ok := p.past(namespace, c.Image, r.resource, now)
		if !ok {
			continue
		}
		setQuantity(&c.Resources.Requests, r.name, request)
		requests = append(requests, string(r.name))
		if p.config.limits == 0 {
			continue
		}
		used, _ := p.history.Percentile(q, r.resource, p.config.limits, now)
		setQuantity(&c.Resources.Limits, r.name, max(p.withHeadroom(used), request, r.least))
		limits = append(limits, string(r.name))
	}
	return requests, limits
}

// withHeadroom returns the limit for what was used.
func (p *plugin) withHeadroom(used uint64) uint64 {
	return uint64(min(float64(used)*float64(100+p.config.headroom)/100, math.MaxInt64/2))
}

// setQuantity sets an amount in a list: billionths of a core, rounded up to thousandths, or bytes.
func setQuantity(list *corev1.ResourceList, name corev1.ResourceName, amount uint64) {
	quantity := resource.NewQuantity(int64(amount), resource.DecimalSI)
	if name == corev1.ResourceCPU {
		const nanosPerMilli = 1_000_000
		quantity = resource.NewMilliQuantity(int64((amount+nanosPerMilli-1)/nanosPerMilli), resource.DecimalSI)
	}
	if *list == nil {
		*list = corev1.ResourceList{}
	}
	(*list)[name] = *quantity
}

// past returns what to request for an image: of the first way of which there are enough numbers.
func (p *plugin) past(namespace, image string, r history.Resource, now time.Time) (history.Query, uint64, bool) {
	for _, q := range p.ways(namespace, image) {
		if n, numbers := p.history.Percentile(q, r, p.config.requests, now); numbers > fewest {
			return q, n, true
		}
	}
	return history.Query{}, 0, false
}

// ways returns what an estimate may be made of, the best first.
func (p *plugin) ways(namespace, image string) (ways []history.Query) {
	windows := p.config.windows
	longest := windows[len(windows)-1]
	for _, window := range windows {
		ways = append(ways, history.Query{Namespace: namespace, Image: image, Within: window})
	}
	if p.config.namespaceOnly {
		return append(ways, history.Query{Namespace: namespace, Image: image, AnyTag: true, Within: longest})
	}
	for _, window := range windows {
		ways = append(ways, history.Query{Image: image, Within: window})
	}
	return append(ways, history.Query{Image: image, AnyTag: true, Within: longest})
}
