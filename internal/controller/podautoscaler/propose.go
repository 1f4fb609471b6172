package podautoscaler

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// proposal is the number of replicas that a metric asks for.
type proposal struct {
	replicas int32
	metric   string // as events name it
	status   autoscalingv2.MetricStatus
}

// metricError says why a metric asks for no number of replicas.
type metricError struct {
	reason string // of the event and the condition
	cause  error  // as they tell it
	err    error  // with the metric's name
}

// propose returns the largest number of replicas that a metric asks for. Metrics that fail do not hinder scaling up, as more than one of them can only
// ask for more.
func (e *evaluation) propose() (replicas int32, metric string, err error) {
	specs := e.hpa.Spec.Metrics
	e.statuses = make([]autoscalingv2.MetricStatus, len(specs))
	var first *metricError
	failed := 0
	for i := range specs {
		p, failure := e.proposeFor(&specs[i], &e.measured.results[i])
		e.counts.computed(specs[i].Type, e.hpa.Status.CurrentReplicas, p.replicas, failure != nil, e.measured.results[i].took)
		if failure != nil {
			e.warn(failure.reason, failure.cause.Error())
			e.problem = errorInternal
			if failed++; first == nil {
				first = failure
			}
			continue
		}
		e.statuses[i] = p.status
		if replicas == 0 || p.replicas > replicas {
			replicas, metric = p.replicas, p.metric
		}
	}
	if failed == len(specs) || failed > 0 && replicas < e.scale.found.Spec.Replicas {
		if first == nil {
			first = &metricError{cause: errors.New("no metrics"), err: errors.New("no metrics")}
		}
		e.condition(autoscalingv2.ScalingActive, false, first.reason, fmt.Sprintf("the HPA was unable to compute the replica count: %v", first.cause))
		return 0, "", fmt.Errorf("invalid metrics (%d invalid out of %d), first error is: %w", failed, len(specs), first.err)
	}
	e.condition(autoscalingv2.ScalingActive, true, "ValidMetricFound", "the HPA was able to successfully calculate a replica count from "+metric)
	return replicas, metric, nil
}

// proposeFor returns what one metric asks for.
func (e *evaluation) proposeFor(spec *autoscalingv2.MetricSpec, m *measurement) (proposal, *metricError) {
	var p proposal
	var err error
	reason, what := "", ""
	switch spec.Type {
	case autoscalingv2.ObjectMetricSourceType:
		reason, what = "FailedGetObjectMetric", "object metric value"
		p, err = e.forObject(spec.Object, m)
	case autoscalingv2.PodsMetricSourceType:
		reason, what = "FailedGetPodsMetric", "pods metric value"
		p, err = e.forPods(spec.Pods, m)
	case autoscalingv2.ResourceMetricSourceType:
		reason, what = "FailedGetResourceMetric", string(spec.Resource.Name)+" resource metric value"
		p, err = e.forResource(spec.Resource.Name, &spec.Resource.Target, "", m)
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: spec.Resource.Name, Current: resourceCurrent(p)}}
	case autoscalingv2.ContainerResourceMetricSourceType:
		c := spec.ContainerResource
		reason, what = "FailedGetContainerResourceMetric", c.Container+" container metric value"
		p, err = e.forResource(c.Name, &c.Target, c.Container, m)
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: c.Name, Container: c.Container, Current: resourceCurrent(p)}}
	case autoscalingv2.ExternalMetricSourceType:
		reason, what = "FailedGetExternalMetric", spec.External.Metric.Name+" external metric value"
		p, err = e.forExternal(spec.External, m)
	default: // the API server's validation lets no other type pass
		err = fmt.Errorf("unknown metric source type %q", spec.Type)
		return proposal{}, &metricError{"InvalidMetricSourceType", err, err}
	}
	if err != nil {
		return proposal{}, &metricError{reason, err, fmt.Errorf("failed to get %s: %w", what, err)}
	}
	return p, nil
}

// resourceCurrent returns the current value of a proposal that forResource made.
func resourceCurrent(p proposal) autoscalingv2.MetricValueStatus {
	if p.status.Resource == nil {
		return autoscalingv2.MetricValueStatus{}
	}
	return p.status.Resource.Current
}

// forResource returns what the usage of a resource asks for, by the pods or by one of their containers.
func (e *evaluation) forResource(name corev1.ResourceName, target *autoscalingv2.MetricTarget, container string, m *measurement) (p proposal, err error) {
	samples, err := m.ofResource(e.pods, name, container)
	if err != nil {
		err = fmt.Errorf("unable to get metrics for resource %s: %w", name, err)
	}
	g := group{pods: e.pods, samples: samples, resource: name, settings: e.settings, now: e.now}
	current := autoscalingv2.MetricValueStatus{}
	switch {
	case target.AverageValue != nil:
		p.metric = fmt.Sprintf("%s resource", name)
		var u usage
		if err == nil {
			p.replicas, u, err = g.forAverage(e.scale.found.Spec.Replicas, target.AverageValue.MilliValue(), e.tolerances())
		}
		if err != nil {
			return p, fmt.Errorf("failed to get %s usage: %w", name, err)
		}
		current.AverageValue = quantityOf(name, u.average)
	case target.AverageUtilization != nil:
		p.metric = fmt.Sprintf("%s resource utilization (percentage of request)", name)
		if container != "" {
			p.metric = fmt.Sprintf("%s container resource utilization (percentage of request)", name)
		}
		var u usage
		if err == nil {
			p.replicas, u, err = g.forUtilization(e.scale.found.Spec.Replicas, *target.AverageUtilization, container, e.tolerances())
		}
		if err != nil {
			return p, fmt.Errorf("failed to get %s utilization: %w", name, err)
		}
		current.AverageUtilization, current.AverageValue = &u.percent, quantityOf(name, u.average)
	default:
		return p, errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	}
	p.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: name, Current: current}
	return p, nil
}

// quantityOf returns an amount in thousandths in the form in which the metrics API shows it.
func quantityOf(name corev1.ResourceName, milli int64) *resource.Quantity {
	if name == corev1.ResourceMemory {
		return resource.NewMilliQuantity(milli, resource.BinarySI)
	}
	return resource.NewMilliQuantity(milli, resource.DecimalSI)
}

// forPods returns what a metric of each pod asks for.
func (e *evaluation) forPods(spec *autoscalingv2.PodsMetricSource, m *measurement) (proposal, error) {
	if m.err != nil {
		return proposal{}, fmt.Errorf("unable to get metric %s: %w", spec.Metric.Name, m.err)
	}
	g := group{pods: e.pods, samples: m.samples, settings: e.settings, now: e.now}
	replicas, u, err := g.forAverage(e.scale.found.Spec.Replicas, spec.Target.AverageValue.MilliValue(), e.tolerances())
	if err != nil {
		return proposal{}, err
	}
	return proposal{replicas, "pods metric " + spec.Metric.Name, autoscalingv2.MetricStatus{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricStatus{
		Metric: spec.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: milli(u.average)}}}}, nil
}

// forObject returns what a metric of an object asks for.
func (e *evaluation) forObject(spec *autoscalingv2.ObjectMetricSource, m *measurement) (proposal, error) {
	status := &autoscalingv2.ObjectMetricStatus{DescribedObject: spec.DescribedObject, Metric: spec.Metric}
	p := proposal{status: autoscalingv2.MetricStatus{Type: autoscalingv2.ObjectMetricSourceType, Object: status}}
	err := m.err
	if err != nil {
		err = fmt.Errorf("unable to get metric %s on %s %s/%s: %w", spec.Metric.Name, spec.DescribedObject.Kind, e.hpa.Namespace, spec.DescribedObject.Name, err)
	}
	switch {
	case spec.Target.Type == autoscalingv2.ValueMetricType && spec.Target.Value != nil:
		p.metric = fmt.Sprintf("%s metric %s", spec.DescribedObject.Kind, spec.Metric.Name)
		if err == nil {
			p.replicas, err = replicasForValue(e.scale.found.Spec.Replicas, m.sum(), spec.Target.Value.MilliValue(), e.pods, e.tolerances())
			status.Current.Value = milli(m.sum())
		}
	case spec.Target.Type == autoscalingv2.AverageValueMetricType && spec.Target.AverageValue != nil:
		p.metric = fmt.Sprintf("external metric %s(%+v)", spec.Metric.Name, spec.Metric.Selector)
		if err != nil {
			return p, fmt.Errorf("failed to get %s object metric: %w", spec.Metric.Name, err)
		}
		var average int64
		p.replicas, average = replicasForShare(e.scale.found.Status.Replicas, m.sum(), spec.Target.AverageValue.MilliValue(), e.tolerances())
		status.Current.AverageValue = milli(average)
	default:
		err = errors.New("invalid object metric source: neither a value target nor an average value target was set")
	}
	return p, err
}

// forExternal returns what a metric asks for that belongs to no object of the cluster.
func (e *evaluation) forExternal(spec *autoscalingv2.ExternalMetricSource, m *measurement) (proposal, error) {
	status := &autoscalingv2.ExternalMetricStatus{Metric: spec.Metric}
	p := proposal{metric: fmt.Sprintf("external metric %s(%+v)", spec.Metric.Name, spec.Metric.Selector),
		status: autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: status}}
	err := m.err
	if err != nil {
		err = fmt.Errorf("unable to get external metric %s/%s/%+v: %w", e.hpa.Namespace, spec.Metric.Name, spec.Metric.Selector, err)
	}
	switch {
	case spec.Target.AverageValue != nil:
		if err != nil {
			return p, fmt.Errorf("failed to get %s external metric: %w", spec.Metric.Name, err)
		}
		var average int64
		p.replicas, average = replicasForShare(e.scale.found.Status.Replicas, m.sum(), spec.Target.AverageValue.MilliValue(), e.tolerances())
		status.Current.AverageValue = milli(average)
	case spec.Target.Value != nil:
		if err == nil {
			p.replicas, err = replicasForValue(e.scale.found.Spec.Replicas, m.sum(), spec.Target.Value.MilliValue(), e.pods, e.tolerances())
			status.Current.Value = milli(m.sum())
		}
		if err != nil {
			return p, fmt.Errorf("failed to get external metric %s: %w", spec.Metric.Name, err)
		}
	default:
		return p, errors.New("invalid external metric source: neither a value target nor an average value target was set")
	}
	return p, nil
}

func milli(amount int64) *resource.Quantity {
	return resource.NewMilliQuantity(amount, resource.DecimalSI)
}

// tolerances returns within which ratio of usage to target nothing is done.
func (e *evaluation) tolerances() tolerances {
	t := tolerances{e.tolerance, e.tolerance}
	of := func(rules *autoscalingv2.HPAScalingRules, to *float64) {
		if rules != nil && rules.Tolerance != nil {
			*to = rules.Tolerance.AsApproximateFloat64()
		}
	}
	if b := e.hpa.Spec.Behavior; b != nil {
		of(b.ScaleDown, &t.down)
		of(b.ScaleUp, &t.up)
	}
	return t
}
