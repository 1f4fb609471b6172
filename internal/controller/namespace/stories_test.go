package namespace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

// In stories a ConfigMap "found" stands for what a sweep found.
func TestStories(t *testing.T) {
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		namespaces, maps := deps.Informers.Core().V1().Namespaces().Lister(), deps.Informers.Core().V1().ConfigMaps().Lister()
		return controller.Loop{Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			namespace, err := namespaces.Get(key.Name)
			if err != nil {
				t.Fatal(err)
			}
			var r report
			if cm, err := maps.ConfigMaps("default").Get("found"); err == nil {
				r = reportOf(t, cm)
			}
			return decide(namespace, r, now)
		}}
	}, stories.Options{Show: conditions})
}

// conditions prints a namespace's status, a line for each condition.
func conditions(a controller.Action) string {
	_, _, obj, ok := controller.Written(a)
	if !ok {
		return ""
	}
	status := obj.(*corev1.Namespace).Status
	lines := "phase " + string(status.Phase) + "\n"
	for _, c := range status.Conditions {
		lines += fmt.Sprintf("%s %s since %v, %s: %s\n", c.Type, c.Status, c.LastTransitionTime.Sub(stories.Epoch), c.Reason, c.Message)
	}
	return lines
}

func reportOf(t *testing.T, cm *corev1.ConfigMap) (r report) {
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		value := cm.Data[key]
		switch key {
		case "found":
			r.foundAny = true
		case "discovery":
			r.discovery = errors.New(value)
		case "parsing":
			r.parsing = errors.New(value)
		default:
			var told struct {
				Count, Estimate int64
				Finalizers      map[string]int
				Error           string
			}
			if err := yaml.UnmarshalStrict([]byte(value), &told); err != nil {
				t.Fatal(err)
			}
			path := strings.Split(key, "/")
			left := remains{resource: schema.GroupVersionResource{Group: path[0], Version: path[1], Resource: path[2]}, count: int(told.Count), estimate: told.Estimate, finalizers: told.Finalizers}
			if told.Error != "" {
				left.err = errors.New(told.Error)
			}
			r.remains = append(r.remains, left)
		}
	}
	return r
}

// Pods have the longest of their grace periods, counted from the deletion of the namespace.
func TestLongestGrace(t *testing.T) {
	pod := func(grace *int64, phase corev1.PodPhase) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: grace}, Status: corev1.PodStatus{Phase: phase}}
	}
	all := []*corev1.Pod{pod(new(int64(10)), corev1.PodRunning), pod(new(int64(30)), corev1.PodPending), pod(new(int64(600)), corev1.PodSucceeded), pod(nil, corev1.PodRunning)}
	for _, c := range []struct {
		pods  []*corev1.Pod
		since time.Duration
		want  int64
	}{{all, 0, 30}, {all, 29 * time.Second, 30}, {all, 30 * time.Second, 0}, {nil, 0, 0}} {
		if got := longestGrace(c.pods, c.since); got != c.want {
			t.Errorf("%d pods after %v: %d", len(c.pods), c.since, got)
		}
	}
}
