package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/journey"
)

// podFacts is a pod, its journey and its Events.
type podFacts struct {
	pod      *corev1.Pod
	tree     *journey.Tree
	events   []corev1.Event
	findings []string // of the causes that concern every kind
}

// explain returns the state of a pod and the reasons, one sentence a line; details of a sentence are indented below it.
func (f podFacts) explain(now time.Time) []string {
	lines := []string{fmt.Sprintf("pod/%s in %s is %s.", f.pod.Name, f.pod.Namespace, f.state())}
	lines = append(lines, f.findings...)
	lines = append(lines, f.origin(now)...)
	lines = append(lines, f.waiting(now)...)
	lines = append(lines, f.place()...)
	return append(lines, f.troubles(now)...)
}

// state returns the pod's state in a few words.
func (f podFacts) state() string {
	p := f.pod
	switch {
	case p.DeletionTimestamp != nil:
		return "ending"
	case p.Status.Phase == corev1.PodSucceeded:
		return "done: all its containers have ended well"
	case p.Status.Phase == corev1.PodFailed:
		return "over: it failed" + because(p.Status.Reason, p.Status.Message)
	case condition(p, corev1.PodReady).Status == corev1.ConditionTrue:
		return "ready"
	case p.Spec.NodeName == "":
		return "pending: it has no node"
	case p.Status.Phase == corev1.PodRunning:
		return "running on node " + p.Spec.NodeName + ", but not ready"
	}
	return "pending on node " + p.Spec.NodeName
}

// origin returns the requests that led to the pod, the first cause last.
func (f podFacts) origin(now time.Time) []string {
	line := "It was created " + ago(now, f.pod.CreationTimestamp.Time)
	var chain []*journey.Node
	if len(f.tree.Roots) > 0 {
		chain = pathTo(f.tree.Roots[0], func(n *journey.Node) bool {
			return n.Kind == journey.KindRequest && n.UID == string(f.pod.UID) && n.Stage == "create"
		})
	}
	var parts []string
	for _, n := range slices.Backward(chain) {
		if n.Kind == journey.KindRequest {
			who := n.Component
			if n == chain[0] && n.User != "" {
				who += " as " + n.User
			}
			what := n.Resource + " " + n.Name
			if n.UID == string(f.pod.UID) {
				parts = append(parts, "by "+who)
			} else {
				parts = append(parts, fmt.Sprintf("because of %s, which %s made", what, who))
			}
		}
	}
	if len(parts) > 0 {
		line += " " + strings.Join(parts, ", ")
	}
	return []string{line + "."}
}

// pathTo returns the path from a node of the tree down to the first for which meant returns true.
func pathTo(n *journey.Node, meant func(*journey.Node) bool) []*journey.Node {
	if meant(n) {
		return []*journey.Node{n}
	}
	for _, c := range n.Children {
		if rest := pathTo(c, meant); rest != nil {
			return append([]*journey.Node{n}, rest...)
		}
	}
	return nil
}

// waiting returns what has to happen before the pod is ready, or removed.
func (f podFacts) waiting(now time.Time) []string {
	p := f.pod
	switch {
	case p.DeletionTimestamp != nil:
		return f.ending(now)
	case p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		return f.ended()
	case condition(p, corev1.PodReady).Status == corev1.ConditionTrue:
		return f.becameReady()
	case p.Spec.NodeName == "":
		return f.unscheduled(now)
	}
	return f.starting(now)
}

func (f podFacts) ending(now time.Time) []string {
	lines := []string{fmt.Sprintf("It was deleted; it has until %s after that to end (%s).", journey.Took(time.Duration(value(f.pod.DeletionGracePeriodSeconds))*time.Second), ago(now, f.pod.DeletionTimestamp.Time))}
	if len(f.pod.Finalizers) > 0 {
		lines = append(lines, "It stays until somebody takes away its finalizers: "+strings.Join(f.pod.Finalizers, ", ")+".")
	}
	for _, c := range f.pod.Status.ContainerStatuses {
		if c.State.Running != nil {
			lines = append(lines, fmt.Sprintf("  container %s still runs", c.Name))
		}
	}
	return lines
}

func (f podFacts) ended() (lines []string) {
	for _, c := range slices.Concat(f.pod.Status.InitContainerStatuses, f.pod.Status.ContainerStatuses) {
		if t := c.State.Terminated; t != nil {
			lines = append(lines, fmt.Sprintf("  container %s ended with code %d%s", c.Name, t.ExitCode, because(t.Reason, t.Message)))
		}
	}
	return lines
}

func (f podFacts) becameReady() []string {
	if f.tree.Ready.IsZero() || len(f.tree.Roots) == 0 || !f.tree.Whole {
		return nil
	}
	return []string{fmt.Sprintf("It was ready %s after the request that began it; skiff journey pod/%s shows the way.", journey.Took(f.tree.Ready.Sub(f.tree.Roots[0].Start)), f.pod.Name)}
}

// unscheduled returns why the pod has no node.
func (f podFacts) unscheduled(now time.Time) []string {
	if gates := f.pod.Spec.SchedulingGates; len(gates) > 0 {
		var names []string
		for _, g := range gates {
			names = append(names, g.Name)
		}
		return []string{"It is not to be scheduled until somebody takes away its scheduling gates: " + strings.Join(names, ", ") + "."}
	}
	var lines []string
	if tried := f.last(journey.Schedule); tried != nil && tried.Error != "" {
		lines = append(lines, fmt.Sprintf("The scheduler tried %s (attempt %s): %s", ago(now, tried.End()), tried.Attribute("attempt"), tried.Error))
		lines = append(lines, verdicts(tried)...)
	} else if c := condition(f.pod, corev1.PodScheduled); c.Status == corev1.ConditionFalse {
		lines = append(lines, "The scheduler says: "+c.Message)
	} else {
		lines = append(lines, fmt.Sprintf("No scheduler has looked at it: is one running that goes by %s?", cmp.Or(f.pod.Spec.SchedulerName, corev1.DefaultSchedulerName)))
	}
	if node := f.pod.Status.NominatedNodeName; node != "" {
		lines = append(lines, "It is to go to node "+node+" when the pods it displaces there have ended.")
	}
	return lines
}

// starting returns what a pod that has a node waits for.
func (f podFacts) starting(now time.Time) (lines []string) {
	if f.pod.Status.StartTime == nil && f.last(journey.Pickup) == nil {
		return []string{"The kubelet of " + f.pod.Spec.NodeName + " has not taken it up: is the node ready?"}
	}
	for _, c := range slices.Concat(f.pod.Status.InitContainerStatuses, f.pod.Status.ContainerStatuses) {
		switch s := c.State; {
		case s.Waiting != nil:
			lines = append(lines, fmt.Sprintf("Container %s waits%s.", c.Name, because(s.Waiting.Reason, s.Waiting.Message)))
		case s.Terminated != nil && s.Terminated.ExitCode != 0:
			lines = append(lines, fmt.Sprintf("Container %s ended with code %d%s.", c.Name, s.Terminated.ExitCode, because(s.Terminated.Reason, s.Terminated.Message)))
		case s.Running != nil && c.Started != nil && !*c.Started:
			lines = append(lines, fmt.Sprintf("Container %s runs; its startup probe has not succeeded, or its postStart hook has not ended.", c.Name))
		case s.Running != nil && !c.Ready:
			lines = append(lines, fmt.Sprintf("Container %s runs; its readiness probe has not succeeded.", c.Name))
		}
		if last := c.LastTerminationState.Terminated; last != nil && !c.Ready {
			lines = append(lines, fmt.Sprintf("  before that it ended with code %d%s; it was started again %d times", last.ExitCode, because(last.Reason, last.Message), c.RestartCount))
		}
	}
	for _, gate := range f.pod.Spec.ReadinessGates {
		if c := condition(f.pod, gate.ConditionType); c.Status != corev1.ConditionTrue {
			lines = append(lines, fmt.Sprintf("Its readiness gate %s is not true%s.", gate.ConditionType, because(c.Reason, c.Message)))
		}
	}
	if done := f.work(func(n *journey.Node) bool { return kubeletStages[n.Stage] && n.Error == "" }); len(done) > 0 {
		last := done[len(done)-1]
		lines = append(lines, fmt.Sprintf("The last thing done for it: %s, %s.", what(last), ago(now, last.End())))
	}
	return lines
}

// kubeletStages are the stages of the kubelet in a pod's journey.
var kubeletStages = map[string]bool{journey.Pickup: true, journey.Volumes: true, journey.Cgroups: true, journey.Sandbox: true, journey.CNI: true,
	journey.Image: true, journey.Create: true, journey.Start: true, journey.Hook: true, journey.Probe: true, journey.Ready: true}

// place returns why the pod is on its node.
func (f podFacts) place() []string {
	node := f.pod.Spec.NodeName
	if node == "" {
		return nil
	}
	tried := f.last(journey.Schedule)
	switch {
	case tried == nil && !f.tree.Whole:
		return nil
	case tried == nil:
		return []string{"It is on node " + node + " because it was created for that node; no scheduler was asked."}
	case tried.Attribute("node") != node:
		return []string{"It is on node " + node + ", which somebody else than the scheduler chose."}
	}
	line := fmt.Sprintf("It is on node %s by choice of the scheduler (%s", node, tried.Attribute("looked at"))
	if attempt := tried.Attribute("attempt"); attempt != "" && attempt != "1" {
		line += ", attempt " + attempt
	}
	return append([]string{line + "):"}, verdicts(tried)...)
}

// verdicts returns the scheduler's reasons for and against nodes.
func verdicts(n *journey.Node) (lines []string) {
	for _, a := range n.Attributes {
		if node, ok := strings.CutPrefix(a.Key, journey.AboutNode); ok {
			lines = append(lines, "  "+node+": "+a.Value)
		} else if strings.HasPrefix(a.Key, "also ") {
			lines = append(lines, "  "+a.Key+": "+a.Value)
		}
	}
	return lines
}

// troubles returns what failed lately and has not succeeded since.
func (f podFacts) troubles(now time.Time) (lines []string) {
	well := map[string]time.Time{}
	for _, n := range f.work(func(n *journey.Node) bool { return n.Error == "" }) {
		well[what(n)] = n.Start
	}
	seen := map[string]bool{}
	for _, n := range slices.Backward(f.work(func(n *journey.Node) bool { return n.Error != "" && n.Stage != journey.Schedule })) {
		if text := what(n) + ": " + n.Error; !seen[text] && !well[what(n)].After(n.Start) && len(seen) < 5 {
			seen[text] = true
			lines = append(lines, fmt.Sprintf("  %s: %s", ago(now, n.End()), text))
		}
	}
	for _, e := range slices.Backward(f.warnings()) {
		if text := e.Reason + ": " + e.Message; !seen[text] && len(seen) < 8 {
			seen[text] = true
			lines = append(lines, fmt.Sprintf("  %s: %s", ago(now, when(&e)), text))
		}
	}
	if len(lines) > 0 && condition(f.pod, corev1.PodReady).Status != corev1.ConditionTrue {
		return append([]string{"What went wrong:"}, lines...)
	}
	return nil
}

// warnings returns the pod's Events of type Warning, the oldest first, without FailedScheduling, which unscheduled explains.
func (f podFacts) warnings() (out []corev1.Event) {
	for _, e := range f.events {
		if e.Type == corev1.EventTypeWarning && e.Reason != "FailedScheduling" {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b corev1.Event) int { return when(&a).Compare(when(&b)) })
	return out
}

func when(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

// work returns the stages that components did for the pod, by their end.
func (f podFacts) work(wanted func(*journey.Node) bool) (found []*journey.Node) {
	for _, root := range f.tree.Roots {
		root.Walk(func(n *journey.Node, _ int) {
			if n.Kind == journey.KindWork && n.UID == string(f.pod.UID) && wanted(n) {
				found = append(found, n)
			}
		})
	}
	slices.SortStableFunc(found, func(a, b *journey.Node) int { return a.End().Compare(b.End()) })
	return found
}

func (f podFacts) last(stage string) *journey.Node {
	found := f.work(func(n *journey.Node) bool { return n.Stage == stage })
	if len(found) == 0 {
		return nil
	}
	return found[len(found)-1]
}

// what returns the stage of a node of the tree in a few words.
func what(n *journey.Node) string {
	if c := n.Attribute("container"); c != "" {
		return n.Stage + " of container " + c
	}
	return n.Stage
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

func because(reason, message string) string {
	if reason == "" && message == "" {
		return ""
	}
	return ": " + strings.TrimPrefix(strings.TrimSuffix(reason+" ("+message+")", " ()"), " ")
}

// ago returns how long ago a time is, or how long until then.
func ago(now, then time.Time) string {
	if d := now.Sub(then); d < 0 {
		return "in " + journey.Took((-d).Round(time.Second))
	} else if d < time.Second {
		return "just now"
	} else if d < 100*time.Second {
		return fmt.Sprintf("%d s ago", d/time.Second)
	} else {
		return d.Round(time.Second).String() + " ago"
	}
}

func value(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}
