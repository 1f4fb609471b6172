package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/scheduling"
)

// cycleStory is a cluster and the cycle of a story.
type cycleStory struct {
	*cluster
	cycle
	profile   *profile
	plugins   *numbering
	now       time.Time
	budgets   []*policyv1.PodDisruptionBudget
	nominated map[string][]*scheduling.Pod
	running   map[string]*scheduling.Pod
}

func TestCycleStories(t *testing.T) {
	runStories(t, "cycle", func(t *testing.T, story func(*testing.T, func(string) string)) {
		profiles, plugins := defaultProfiles(t, nil)
		s := &cycleStory{cluster: newCluster(byApp{}), profile: profiles[defaultSchedulerName], plugins: plugins, now: time.Now(),
			nominated: map[string][]*scheduling.Pod{}, running: map[string]*scheduling.Pod{}}
		story(t, s.run)
	})
}

func (s *cycleStory) run(line string) string {
	plain, settings := words(line)
	switch name := plain[len(plain)-1]; plain[0] {
	case "node":
		s.putNode(nodeOf(name, settings))
	case "remove":
		s.removeNode(name)
	case "running": // a pod on a node
		pod := podOf(name, settings)
		if age, ok := settings["for"]; ok {
			d, err := time.ParseDuration(age)
			if err != nil {
				return err.Error()
			}
			pod.Status.StartTime = &metav1.Time{Time: s.now.Add(-d)}
		}
		if settings["ending"] == "yes" {
			pod.DeletionTimestamp = &metav1.Time{Time: s.now}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
		}
		s.running[name] = scheduling.NewPod(pod)
		s.putPod(s.running[name])
	case "ended":
		s.removePod(s.running[name].UID)
	case "waiting": // a pod is nominated for a node
		pod := scheduling.NewPod(podOf(name, settings))
		s.nominated[settings["nominated"]] = append(s.nominated[settings["nominated"]], pod)
	case "budget":
		allowed, err := strconv.Atoi(settings["allowed"])
		if err != nil {
			return err.Error()
		}
		s.budgets = append(s.budgets, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: pairs(settings["labels"])}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(allowed)}})
	case "schedule": // a pod, which is then on its node
		out, v, pod, err := s.decide(name, settings)
		if err != nil {
			return err.Error()
		}
		if out.node == nil {
			out.postFilter = s.preempt(pod, v, &out).message
			return out.message()
		}
		object := *pod.Pod
		object.Spec.NodeName = out.node.Name
		s.running[name] = scheduling.NewPod(&object)
		s.putPod(s.running[name])
		return name + " goes to " + out.node.Name
	case "score": // prints each plugin's score of each node, by position
		out, v, _, err := s.decide(name, settings)
		if err != nil {
			return err.Error()
		}
		var lines []string
		for _, i := range out.best(len(out.positions)) {
			line := fmt.Sprintf("%s: %d", v.order.names[out.positions[i]], out.total(i))
			for j, plugin := range out.plugins {
				line += fmt.Sprintf(" %s=%d*%d", plugin, out.scores[j*len(out.positions)+i], out.weights[j])
			}
			lines = append(lines, line)
		}
		for _, r := range out.refused {
			status := r.verdict.Status
			lines = append(lines, fmt.Sprintf("%s: refused by %s, %s", v.order.names[r.at], status.Plugin, strings.Join(status.Reasons, ", ")))
		}
		return strings.Join(lines, "\n")
	case "preempt": // prints the victims
		out, v, pod, err := s.decide(name, settings)
		if err != nil {
			return err.Error()
		}
		if out.node != nil {
			return "it fits on " + out.node.Name
		}
		found := s.preempt(pod, v, &out)
		if found.candidate == nil {
			return found.message
		}
		var victims []string
		for _, p := range found.candidate.victims {
			victims = append(victims, p.Name)
		}
		seen := fmt.Sprintf("evicts from %s: %s", found.candidate.node.Name, strings.Join(victims, " "))
		if n := found.candidate.violations; n > 0 {
			seen += fmt.Sprintf(", against the budget of %d", n)
		}
		return seen
	default:
		return unknown(line)
	}
	return ""
}

func (s *cycleStory) decide(name string, settings map[string]string) (outcome, view, *scheduling.Pod, error) {
	pod := scheduling.NewPod(podOf(name, settings))
	v := view{nominated: s.nominated}
	v.snapshot, v.order = s.snapshot()
	out, err := s.cycle.decide(s.profile, pod, v)
	return out, v, pod, err
}

func (s *cycleStory) preempt(pod *scheduling.Pod, v view, out *outcome) preemptionResult {
	p := preemption{args: defaultPreemptionArgs, pdbs: s.budgets, now: s.now, startAt: func(int) int { return 0 },
		current: func(p *scheduling.Pod) *scheduling.Pod { return s.pod(p.UID) }}
	trial, err := prepare(s.profile, pod, v, &diagnosis{})
	if err != nil {
		return preemptionResult{message: err.Error()}
	}
	if trial == nil {
		trial = &search{view: v, profile: s.profile, pod: pod}
	}
	return p.find(trial, &out.diagnosis)
}
