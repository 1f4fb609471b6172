package pod

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
)

// nodeUnreachable is the reason in the status of pods that are deleted because their node is unreachable.
const nodeUnreachable = "NodeLost"

var (
	specDoc   = corev1.PodSpec{}.SwaggerDoc()
	statusDoc = corev1.PodStatus{}.SwaggerDoc()
)

var columns = []catalog.Column[corev1.Pod]{
	catalog.NameColumn[corev1.Pod](),
	{Name: "Ready", Description: "The aggregate readiness state of this pod for accepting traffic.",
		Cell: func(p *corev1.Pod, _ time.Time) any {
			s := summarize(p)
			return strconv.Itoa(s.ready) + "/" + strconv.Itoa(s.total)
		}},
	{Name: "Status", Description: "The aggregate status of the containers in this pod.",
		Cell: func(p *corev1.Pod, _ time.Time) any { return summarize(p).reason }},
	{Name: "Restarts", Timed: true,
		Description: "The number of times the containers in this pod have been restarted and when the last container in this pod has restarted.",
		Cell: func(p *corev1.Pod, now time.Time) any {
			s := summarize(p)
			if s.restarts == 0 || s.lastRestart.IsZero() {
				return strconv.Itoa(s.restarts)
			}
			return fmt.Sprintf("%d (%s ago)", s.restarts, catalog.Since(s.lastRestart, now))
		}},
	catalog.AgeColumn[corev1.Pod](),
	wide("IP", statusDoc["podIP"], podIP),
	wide("Node", specDoc["nodeName"], func(p *corev1.Pod) string { return p.Spec.NodeName }),
	wide("Nominated Node", statusDoc["nominatedNodeName"], func(p *corev1.Pod) string { return p.Status.NominatedNodeName }),
	wide("Readiness Gates", specDoc["readinessGates"], readinessGates),
}

// wide returns a column of kubectl get -o wide.
func wide(name, description string, of func(*corev1.Pod) string) catalog.Column[corev1.Pod] {
	return catalog.Column[corev1.Pod]{Name: name, Priority: 1, Description: description,
		Cell: func(p *corev1.Pod, _ time.Time) any {
			if value := of(p); value != "" {
				return value
			}
			return "<none>"
		}}
}

func podIP(p *corev1.Pod) string {
	if len(p.Status.PodIPs) == 0 {
		return ""
	}
	return p.Status.PodIPs[0].IP
}

func readinessGates(p *corev1.Pod) string {
	if len(p.Spec.ReadinessGates) == 0 {
		return ""
	}
	open := 0
	for _, gate := range p.Spec.ReadinessGates {
		if isTrue(p, gate.ConditionType) {
			open++
		}
	}
	return fmt.Sprintf("%d/%d", open, len(p.Spec.ReadinessGates))
}

// isTrue reports whether the first condition of a type is True.
func isTrue(p *corev1.Pod, t corev1.PodConditionType) bool {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return p.Status.Conditions[i].Status == corev1.ConditionTrue
		}
	}
	return false
}

func rowConditions(p *corev1.Pod) []metav1.TableRowCondition {
	completed := func(message string) []metav1.TableRowCondition {
		return []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue, Reason: string(p.Status.Phase), Message: message}}
	}
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		return completed("The pod has completed successfully.")
	case corev1.PodFailed:
		return completed("The pod failed.")
	}
	return nil
}

// summary summarizes all containers of a pod for a table.
type summary struct {
	ready, total int
	restarts     int
	lastRestart  metav1.Time
	reason       string
}

func summarize(p *corev1.Pod) summary {
	s := summary{reason: string(p.Status.Phase), total: len(p.Spec.Containers)}
	if p.Status.Reason != "" {
		s.reason = p.Status.Reason
	}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.reason = corev1.PodReasonSchedulingGated
		}
	}
	for i := range p.Spec.InitContainers {
		if isSidecar(&p.Spec.InitContainers[i]) {
			s.total++
		}
	}
	if sidecars, initializing := s.addInitContainers(p); !initializing || isTrue(p, corev1.PodInitialized) {
		// Once a pod is initialized, only the restarts of sidecars count among its init containers.
		s.restarts, s.lastRestart = sidecars.restarts, sidecars.lastRestart
		s.addContainers(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == nodeUnreachable:
		s.reason = "Unknown"
	case p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
		s.reason = "Terminating"
	}
	return s
}

// addInitContainers adds the init containers up to the first that has not finished. It also returns the restarts of sidecars alone.
func (s *summary) addInitContainers(p *corev1.Pod) (sidecars summary, initializing bool) {
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.addRestarts(c)
		sidecar := sidecarNamed(p, c.Name)
		if sidecar {
			sidecars.addRestarts(c)
		}
		ended, waiting := c.State.Terminated, c.State.Waiting
		switch {
		case ended != nil && ended.ExitCode == 0:
			continue
		case sidecar && is(c.Started):
			if c.Ready {
				s.ready++
			}
			continue
		case ended != nil:
			s.reason = "Init:" + endReason(ended)
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "PodInitializing":
			s.reason = "Init:" + waiting.Reason
		default:
			s.reason = fmt.Sprintf("Init:%d/%d", i, len(p.Spec.InitContainers))
		}
		return sidecars, true
	}
	return sidecars, false
}

// addContainers adds the containers from the last to the first, so that the reason of the first one that has a reason is shown.
func (s *summary) addContainers(p *corev1.Pod) {
	running, failure := false, ""
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.addRestarts(c)
		switch ended, waiting := c.State.Terminated, c.State.Waiting; {
		case waiting != nil && waiting.Reason != "":
			s.reason = waiting.Reason
		case ended != nil:
			s.reason = endReason(ended)
			if ended.ExitCode != 0 {
				failure = s.reason
			}
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.reason != "Completed" {
		return
	}
	switch { // one finished container does not mean that the pod has finished
	case running && anyReady(p):
		s.reason = "Running"
	case failure != "":
		s.reason = failure
	case running:
		s.reason = "NotReady"
	}
}

func anyReady(p *corev1.Pod) bool {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

func (s *summary) addRestarts(c *corev1.ContainerStatus) {
	s.restarts += int(c.RestartCount)
	if last := c.LastTerminationState.Terminated; last != nil && s.lastRestart.Before(&last.FinishedAt) {
		s.lastRestart = last.FinishedAt
	}
}

func endReason(t *corev1.ContainerStateTerminated) string {
	switch {
	case t.Reason != "":
		return t.Reason
	case t.Signal != 0:
		return fmt.Sprintf("Signal:%d", t.Signal)
	default:
		return fmt.Sprintf("ExitCode:%d", t.ExitCode)
	}
}

func sidecarNamed(p *corev1.Pod, name string) bool {
	for i := range p.Spec.InitContainers {
		if p.Spec.InitContainers[i].Name == name {
			return isSidecar(&p.Spec.InitContainers[i])
		}
	}
	return false
}
