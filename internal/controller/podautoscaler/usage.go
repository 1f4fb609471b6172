package podautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"

	"skiff/internal/controller/owned"
)

// sample is what a metric says of a pod, in thousandths.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration // that the value was measured over, until at
}

// tolerances are by how much the ratio of usage to target may be off without anything being done.
type tolerances struct{ down, up float64 }

func (t tolerances) within(ratio float64) bool { return 1-t.down <= ratio && ratio <= 1+t.up }

// usage is what the pods of a group use that count.
type usage struct {
	ratio   float64 // to what they should use
	average int64   // in thousandths
	percent int32   // of what they request
}

var (
	errNoPods    = errors.New("no pods returned by selector while calculating replica count")
	errNoSamples = errors.New("did not receive metrics for targeted pods (pods might be unready)")
	errNoMatches = errors.New("no metrics returned matched known pods")
)

// group is the pods of a target and what a metric says of them.
type group struct {
	settings
	pods     []*corev1.Pod
	samples  map[string]sample   // by the pod's name
	resource corev1.ResourceName // empty for metrics that are none
	now      time.Time
}

// counted are the pods of a group by how they count.
type counted struct {
	samples map[string]sample // of the pods that are ready, as far as that matters
	missing []string          // there is no sample of these pods
	unready []string          // these pods do not do their work yet, so their samples say nothing
}

// forUtilization returns the number of replicas that use a percentage of their requests.
func (g *group) forUtilization(current, percent int32, container string, t tolerances) (int32, usage, error) {
	requests, requestErr := map[string]int64{}, error(nil)
	for _, pod := range g.pods {
		request, err := requestOf(pod, container, g.resource)
		if err != nil {
			requestErr = err
			break
		}
		requests[pod.Name] = request
	}
	return g.replicas(current, t, demand{
		measure: func(samples map[string]sample) (usage, error) {
			if requestErr != nil {
				return usage{}, requestErr
			}
			used, requested := int64(0), int64(0)
			for name, s := range samples {
				used += s.value
				requested += requests[name]
			}
			if requested == 0 {
				return usage{}, errNoMatches
			}
			is := int32(used * 100 / requested)
			return usage{float64(is) / float64(percent), used / int64(len(samples)), is}, nil
		},
		missing: func(pod string) int64 { return requests[pod] * int64(max(100, percent)) / 100 },
	})
}

// forAverage returns the number of replicas whose average is a value.
func (g *group) forAverage(current int32, average int64, t tolerances) (int32, usage, error) {
	return g.replicas(current, t, demand{
		measure: func(samples map[string]sample) (usage, error) {
			total := int64(0)
			for _, s := range samples {
				total += s.value
			}
			is := total / int64(len(samples))
			return usage{ratio: float64(is) / float64(average), average: is}, nil
		},
		missing: func(string) int64 { return average },
	})
}

// demand is what the pods of a group should use.
type demand struct {
	measure func(samples map[string]sample) (usage, error) // samples is not empty
	missing func(pod string) int64                         // what a pod without a sample is taken to use before the target is scaled down
}

// replicas returns the number of replicas that meet a demand. Pods that nothing is known of are taken for what speaks against a change.
func (g *group) replicas(current int32, t tolerances, d demand) (int32, usage, error) {
	if len(g.pods) == 0 {
		return 0, usage{}, errNoPods
	}
	c := g.count()
	if len(c.samples) == 0 {
		return 0, usage{}, errNoSamples
	}
	is, err := d.measure(c.samples)
	if err != nil {
		return 0, usage{}, err
	}
	grow, shrink := is.ratio > 1, is.ratio < 1
	if len(c.missing) == 0 && (len(c.unready) == 0 || !grow) {
		if t.within(is.ratio) {
			return current, is, nil
		}
		return replicasOf(is.ratio, len(c.samples)), is, nil
	}
	for _, pod := range c.missing {
		switch {
		case shrink:
			c.samples[pod] = sample{value: d.missing(pod)}
		case grow:
			c.samples[pod] = sample{}
		}
	}
	if grow {
		for _, pod := range c.unready {
			c.samples[pod] = sample{}
		}
	}
	then, err := d.measure(c.samples)
	if err != nil {
		return 0, is, err
	}
	if t.within(then.ratio) || shrink && then.ratio > 1 || grow && then.ratio < 1 {
		return current, is, nil // too little, or the other way round
	}
	replicas := replicasOf(then.ratio, len(c.samples))
	if then.ratio < 1 && replicas > current || then.ratio > 1 && replicas < current {
		return current, is, nil
	}
	return replicas, is, nil
}

// replicasOf returns the number of replicas that bring a ratio of so many of them to one.
func replicasOf(ratio float64, pods int) int32 {
	return int32(min(math.Ceil(ratio*float64(pods)), math.MaxInt32))
}

// count sorts the pods of the group by how they count. Pods that are ending count for nothing.
func (g *group) count() counted {
	c := counted{samples: map[string]sample{}}
	for _, pod := range g.pods {
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		s, found := g.samples[pod.Name]
		switch {
		case pod.Status.Phase == corev1.PodPending:
			c.unready = append(c.unready, pod.Name)
		case !found:
			c.missing = append(c.missing, pod.Name)
		case g.resource == corev1.ResourceCPU && g.starting(pod, s):
			c.unready = append(c.unready, pod.Name)
		default:
			c.samples[pod.Name] = s
		}
	}
	return c
}

// starting reports whether a pod's CPU usage is that of its start rather than of its work.
func (g *group) starting(pod *corev1.Pod, s sample) bool {
	ready, start := owned.ReadyCondition(pod), pod.Status.StartTime
	if ready == nil || start == nil {
		return true
	}
	if start.Add(g.cpuInitialization).After(g.now) {
		return ready.Status == corev1.ConditionFalse || s.at.Before(ready.LastTransitionTime.Add(s.window))
	}
	return ready.Status == corev1.ConditionFalse && start.Add(g.readinessDelay).After(ready.LastTransitionTime.Time) // it has never been ready
}

// requestOf returns what a pod requests of a resource in thousandths, or one of its containers.
func requestOf(pod *corev1.Pod, container string, name corev1.ResourceName) (int64, error) {
	if container == "" && resource.IsPodLevelRequestsSet(pod) {
		request, ok := resource.PodRequests(pod, resource.PodResourcesOptions{})[name]
		if !ok {
			return 0, fmt.Errorf("missing pod-level request for %s in Pod %s", name, pod.Name)
		}
		return request.MilliValue(), nil
	}
	sum, found := int64(0), container == ""
	add := func(c *corev1.Container) error {
		if container != "" && container != c.Name {
			return nil
		}
		found = true
		request, ok := c.Resources.Requests[name]
		if !ok {
			return fmt.Errorf("missing request for %s in container %s of Pod %s", name, c.Name, pod.Name)
		}
		sum += request.MilliValue()
		return nil
	}
	for i := range pod.Spec.Containers {
		if err := add(&pod.Spec.Containers[i]); err != nil {
			return 0, err
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
			continue
		}
		if err := add(c); err != nil {
			return 0, err
		}
	}
	if !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
	}
	return sum, nil
}

// replicasForValue returns the number of replicas that bring a value to its target, if it falls as replicas are added.
func replicasForValue(current int32, value, target int64, pods []*corev1.Pod, t tolerances) (int32, error) {
	ratio := float64(value) / float64(target)
	if current == 0 {
		return replicasOf(ratio, 1), nil
	}
	if t.within(ratio) {
		return current, nil
	}
	if len(pods) == 0 {
		return 0, fmt.Errorf("unable to calculate ready pods: %w", errNoPods)
	}
	ready := 0
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning && owned.Ready(pod) {
			ready++
		}
	}
	return replicasOf(ratio, ready), nil
}

// replicasForShare returns the number of replicas of which each has a share of a value, and the share that each has now.
func replicasForShare(current int32, value, share int64, t tolerances) (replicas int32, average int64) {
	replicas = current
	if !t.within(float64(value) / (float64(share) * float64(current))) {
		replicas = replicasOf(float64(value)/float64(share), 1)
	}
	if current == 0 || value == math.MaxInt64 {
		return replicas, value
	}
	return replicas, int64(math.Ceil(float64(value) / float64(current)))
}
