package scheduling

import "fmt"

// schedulingGates keeps pods with scheduling gates out of the active queue.
type schedulingGates struct{}

func (schedulingGates) Name() string { return SchedulingGates }

func (schedulingGates) EventsToRegister() []EventWithHint {
	return []EventWithHint{{Kind: TargetPod, Actions: UpdatePodSchedulingGatesEliminated}}
}

func (schedulingGates) PreEnqueue(pod *Pod) *Status {
	if len(pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	names := make([]string, 0, len(pod.Spec.SchedulingGates))
	for _, gate := range pod.Spec.SchedulingGates {
		names = append(names, gate.Name)
	}
	return refuse(SchedulingGates, UnschedulableAndUnresolvable, fmt.Sprintf("waiting for scheduling gates: %v", names))
}
