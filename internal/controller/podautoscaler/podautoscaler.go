package podautoscaler

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"

	"skiff/internal/controller"
	"skiff/internal/controller/kinds"
)

// settings are the flags that decide about autoscalers.
type settings struct {
	syncPeriod        time.Duration
	stabilization     time.Duration // how long a larger proposal holds back scaling down, unless the autoscaler's behavior says otherwise
	cpuInitialization time.Duration // how long after a pod's start its CPU usage counts only if the pod is ready
	readinessDelay    time.Duration // changes of readiness so soon after a pod's start count as its first
	tolerance         float64
}

func settingsOf(c controller.Config) settings {
	seconds := func(s controller.Seconds, otherwise time.Duration) time.Duration {
		return cmp.Or(time.Duration(float64(s)*float64(time.Second)), otherwise)
	}
	return settings{
		syncPeriod:        seconds(c.PodAutoscalerSyncPeriod, 15*time.Second),
		stabilization:     seconds(c.PodAutoscalerStabilization, 5*time.Minute),
		cpuInitialization: seconds(c.PodAutoscalerCPUInitialization, 5*time.Minute),
		readinessDelay:    seconds(c.PodAutoscalerReadinessDelay, 30*time.Second),
		tolerance:         cmp.Or(c.PodAutoscalerTolerance, 0.1),
	}
}

// loop reads the caches and the metrics APIs.
type loop struct {
	settings
	log         *slog.Logger
	autoscalers autoscalinglisters.HorizontalPodAutoscalerLister
	pods        podFinder
	selectors   selectors
	counts      *counts

	// readScale, writeScale and readMetrics return the actions that ask the API. The actions do not fail: the query holds the error.
	readScale   func(*scaleQuery) controller.Action
	writeScale  func(q *scaleQuery, replicas int32) controller.Action
	readMetrics func(*metricsQuery) controller.Action

	mu        sync.Mutex
	histories map[controller.Key]*history
}

// New returns the loop. Its keys are HorizontalPodAutoscalers.
func New(deps controller.Deps) controller.Loop {
	l := newLoop(deps)
	return controller.Loop{Name: "horizontal-pod-autoscaler-controller", ServiceAccount: "horizontal-pod-autoscaler", EventSource: "horizontal-pod-autoscaler",
		QueueName: "horizontalpodautoscaler", Reconcile: l.reconcile,
		Watch: []controller.Watch{
			{Informer: deps.Informers.Autoscaling().V2().HorizontalPodAutoscalers().Informer(), Type: &autoscalingv2.HorizontalPodAutoscaler{}, Keys: specChanged},
			// The target's pods are read when their time has come: no change of one wakes the loop.
			{Informer: deps.Informers.Core().V1().Pods().Informer(), Keys: func(_, _ metav1.Object) []controller.Key { return nil }},
		}}
}

func newLoop(deps controller.Deps) *loop {
	l := &loop{settings: settingsOf(deps.Config), log: deps.Log, autoscalers: deps.Informers.Autoscaling().V2().HorizontalPodAutoscalers().Lister(),
		pods: podFinder{pods: deps.Informers.Core().V1().Pods().Lister()}, histories: map[controller.Key]*history{}, counts: newCounts(deps.Metrics)}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	resources := &kinds.Finder{}
	scales := scaler{resources}
	l.readScale, l.writeScale = scales.read, scales.write
	l.readMetrics = (&metricsReader{resources: resources, timeout: max(l.syncPeriod, leastTimeout), usages: usageLists{maxAge: l.syncPeriod / listPart}}).action
	return l
}

// specChanged returns the key of an autoscaler that was created or deleted, or whose spec was changed. The loop's own updates of status wake nothing.
func specChanged(before, after metav1.Object) []controller.Key {
	switch {
	case after == nil:
		return []controller.Key{controller.KeyOf(before)}
	case before != nil && before.GetUID() == after.GetUID() && before.GetGeneration() == after.GetGeneration():
		return nil
	}
	return []controller.Key{controller.KeyOf(after)}
}

func (l *loop) reconcile(key controller.Key, now time.Time) controller.Decision {
	cached, err := l.autoscalers.HorizontalPodAutoscalers(key.Namespace).Get(key.Name)
	if err != nil { // it has been deleted
		l.forget(key)
		return controller.Nothing
	}
	e := &evaluation{settings: l.settings, was: cached, hpa: cached.DeepCopy(), now: now, history: l.history(key), log: l.log, counts: l.counts, began: time.Now(), action: actionNone, problem: errorNone}
	e.scale = &scaleQuery{namespace: key.Namespace, target: cached.Spec.ScaleTargetRef}
	e.writeScale = l.writeScale
	e.metrics = func(selector labels.Selector) controller.Decision { return l.measure(e, key, selector) }
	return controller.Decision{Actions: []controller.Action{l.readScale(e.scale)}, Then: e.haveScale}
}

// measure finds the pods of the target and reads the metrics.
func (l *loop) measure(e *evaluation, key controller.Key, selector labels.Selector) controller.Decision {
	autoscalers := l.selectors.put(key, selector)
	pods, of := l.pods.find(key.Namespace, selector, e.now)
	if rivals := l.selectors.selecting(key.Namespace, pods, 2); len(rivals) > 1 {
		return e.ambiguous(rivals)
	}
	e.pods = pods
	e.measured = &metricsQuery{namespace: key.Namespace, selector: selector, pods: pods, specs: e.hpa.Spec.Metrics, now: e.now,
		share: worthSharing(autoscalers, len(pods), of), results: make([]measurement, len(e.hpa.Spec.Metrics))}
	return controller.Decision{Actions: []controller.Action{l.readMetrics(e.measured)}, Then: e.haveMetrics}
}

func (l *loop) history(key controller.Key) *history {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.histories[key]
	if h == nil {
		h = &history{}
		l.histories[key] = h
		l.counts.known(len(l.histories))
	}
	return h
}

func (l *loop) forget(key controller.Key) {
	l.selectors.remove(key)
	l.counts.forget(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.histories, key)
	l.counts.known(len(l.histories))
}
