package podautoscaler

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
)

// evaluation is one look at an autoscaler. Its steps follow each other by Decision.Then, as the API is asked between them: haveScale, haveMetrics, end.
type evaluation struct {
	settings
	log *slog.Logger
	was *autoscalingv2.HorizontalPodAutoscaler // as the cache has it
	hpa *autoscalingv2.HorizontalPodAutoscaler // a copy, whose status is brought up to date
	now time.Time

	scale    *scaleQuery
	measured *metricsQuery
	pods     []*corev1.Pod
	history  *history

	metrics    func(labels.Selector) controller.Decision // reads the metrics of the target's pods, and goes on with haveMetrics
	writeScale func(q *scaleQuery, replicas int32) controller.Action

	counts          *counts
	began           time.Time
	action, problem string // as counted

	events   []controller.Action
	statuses []autoscalingv2.MetricStatus
}

func (e *evaluation) warn(reason, message string) {
	e.events = append(e.events, controller.Event(e.hpa, corev1.EventTypeWarning, reason, "%s", message))
}

// minReplicas returns the smallest number of replicas that the autoscaler may ask for.
func (e *evaluation) minReplicas() int32 { return ptr.Deref(e.hpa.Spec.MinReplicas, 1) }

// haveScale goes on when the target's scale has been read.
func (e *evaluation) haveScale(error) controller.Decision {
	if err := e.scale.err; err != nil {
		e.problem = errorInternal
		if _, invalid := schema.ParseGroupVersion(e.hpa.Spec.ScaleTargetRef.APIVersion); invalid != nil {
			e.problem = errorSpec
		}
		e.warn("FailedGetScale", err.Error())
		e.condition(autoscalingv2.AbleToScale, false, "FailedGetScale", fmt.Sprintf("the HPA controller was unable to get the target's current scale: %v", err))
		return e.end()
	}
	e.condition(autoscalingv2.AbleToScale, true, "SucceededGetScale", "the HPA controller was able to get the target's current scale")
	current := e.scale.found.Spec.Replicas
	e.history.begin(current, e.now)
	switch {
	case current == 0 && !e.mayStartFromZero():
		e.condition(autoscalingv2.ScalingActive, false, "ScalingDisabled", "scaling is disabled since the replica count of the target is zero")
		return e.keep(current)
	case current == 0:
	case current > e.hpa.Spec.MaxReplicas:
		return e.rescale(e.hpa.Spec.MaxReplicas, "Current number of replicas above Spec.MaxReplicas")
	case current < e.minReplicas():
		return e.rescale(e.minReplicas(), "Current number of replicas below Spec.MinReplicas")
	}
	selector, err := parseSelector(e.scale.found.Status.Selector)
	if err != nil {
		return e.unselectable(err)
	}
	return e.metrics(selector)
}

// mayStartFromZero reports whether a target without replicas gets any: if the autoscaler took the last one, and there is a metric that exists without
// pods or a minimum that is no longer zero. A person who scales to zero turns the autoscaler off.
func (e *evaluation) mayStartFromZero() bool {
	return e.hasCondition(autoscalingv2.ScaledToZero) && (e.minReplicas() != 0 || e.metricBeyondPods())
}

// metricBeyondPods reports whether the autoscaler has a metric that exists without any pods.
func (e *evaluation) metricBeyondPods() bool {
	for _, m := range e.hpa.Spec.Metrics {
		if m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType {
			return true
		}
	}
	return false
}

// selectorError says why the pods of a target cannot be told from others.
type selectorError struct{ event, message, condition string }

func (e *selectorError) Error() string { return e.message }

// parseSelector parses the selector of a scale.
func parseSelector(text string) (labels.Selector, error) {
	if text == "" {
		return nil, &selectorError{"SelectorRequired", "selector is required", "the HPA target's scale is missing a selector"}
	}
	selector, err := labels.Parse(text)
	if err != nil {
		message := fmt.Sprintf("couldn't convert selector into a corresponding internal selector object: %v", err)
		return nil, &selectorError{"InvalidSelector", message, message}
	}
	return selector, nil
}

func (e *evaluation) unselectable(err error) controller.Decision {
	var s *selectorError
	errors.As(err, &s)
	e.warn(s.event, s.message)
	e.condition(autoscalingv2.ScalingActive, false, "InvalidSelector", s.condition)
	return e.failMetrics(err)
}

// ambiguous ends an evaluation because other autoscalers have the same pods.
func (e *evaluation) ambiguous(rivals []controller.Key) controller.Decision {
	err := fmt.Errorf("pods by selector %v are controlled by more than one HPA (e.g. %v)", e.scale.found.Status.Selector, rivals)
	e.warn("AmbiguousSelector", err.Error())
	e.condition(autoscalingv2.ScalingActive, false, "AmbiguousSelector", err.Error())
	return e.failMetrics(err)
}

// failMetrics ends an evaluation because no number of replicas could be computed.
func (e *evaluation) failMetrics(err error) controller.Decision {
	e.problem = errorInternal
	e.setReplicas(e.scale.found.Spec.Replicas, e.hpa.Status.DesiredReplicas)
	e.warn("FailedComputeMetricsReplicas", err.Error())
	return e.end()
}

// haveMetrics goes on when the metrics have been read.
func (e *evaluation) haveMetrics(error) controller.Decision {
	current, minimum := e.scale.found.Spec.Replicas, e.minReplicas()
	wanted, metric, err := e.propose()
	if err != nil {
		return e.failMetrics(err)
	}
	reason := ""
	if wanted > current {
		reason = metric + " above target"
	} else if wanted < current {
		reason = "All metrics below target"
	}
	wanted = e.limit(current, wanted)
	if reason == "" && current < minimum { // the minimum was raised while there were no replicas
		reason = "Current number of replicas below Spec.MinReplicas"
	}
	if wanted == current {
		return e.keep(current)
	}
	return e.rescale(wanted, reason)
}

// rescale scales the target.
func (e *evaluation) rescale(wanted int32, reason string) controller.Decision {
	current := e.scale.found.Spec.Replicas
	return controller.Decision{Actions: append(e.takeEvents(), e.writeScale(e.scale, wanted)), Then: func(error) controller.Decision {
		if err := e.scale.err; err != nil {
			e.problem = errorInternal
			e.warn("FailedRescale", fmt.Sprintf("New size: %d; reason: %s; error: %v", wanted, reason, err))
			e.condition(autoscalingv2.AbleToScale, false, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
			e.setReplicas(current, e.hpa.Status.DesiredReplicas)
			return e.end()
		}
		e.condition(autoscalingv2.AbleToScale, true, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", wanted))
		e.events = append(e.events, controller.Event(e.hpa, corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", wanted, reason))
		if e.action = actionUp; wanted < current {
			e.action = actionDown
		}
		if e.hpa.Spec.Behavior != nil {
			e.history.scaled(current, wanted, e.now)
		}
		if current > 0 && wanted == 0 && e.minReplicas() == 0 && e.metricBeyondPods() {
			e.condition(autoscalingv2.ScaledToZero, true, "ScaledToZero", "the HPA controller scaled the workload to zero")
		} else {
			e.condition(autoscalingv2.ScaledToZero, false, "NotScaledToZero", "the HPA controller did not scale the workload to zero")
		}
		e.setReplicas(current, wanted)
		e.hpa.Status.LastScaleTime = &metav1.Time{Time: e.now}
		return e.end()
	}}
}

// keep ends an evaluation that leaves the target as it is.
func (e *evaluation) keep(current int32) controller.Decision {
	e.setReplicas(current, current)
	return e.end()
}

func (e *evaluation) takeEvents() []controller.Action {
	events := e.events
	e.events = nil
	return events
}

// end records the events, writes the status if it has changed, and looks again after the sync period, whatever fails.
func (e *evaluation) end() controller.Decision {
	e.counts.evaluated(e.hpa, e.action, e.problem, e.began)
	again := controller.Decision{Actions: e.takeEvents(), RequeueAfter: e.syncPeriod}
	if equality.Semantic.DeepEqual(e.was.Status, e.hpa.Status) {
		return again
	}
	return controller.Decision{Actions: append(again.Actions, controller.UpdateStatus(e.hpa)), Then: func(err error) controller.Decision {
		next := controller.Decision{RequeueAfter: e.syncPeriod}
		if err != nil {
			e.log.Debug("failed to update the status of an autoscaler", "autoscaler", controller.KeyOf(e.hpa), "error", err)
			next.Actions = []controller.Action{controller.Event(e.hpa, corev1.EventTypeWarning, "FailedUpdateStatus", "%v", err)}
		}
		return next
	}}
}
