package scheduling

import "fmt"

// schedulingGates keeps pods with scheduling gates out of the queue.
type schedulingGates struct{}

func (schedulingGates) Name() string { return SchedulingGates }

func (schedulingGates) Interests() []Interest {
	return []Interest{{Kind: TargetPod, Actions: UpdatePodSchedulingGatesEliminated}}
}

func (schedulingGates) Admit(pod *Pod) *Status {
	if len(pod.Spec.SchedulingGates) == 0 {
		return nil
	}
	names := make([]string, 0, len(pod.Spec.SchedulingGates))
	for _, gate := range pod.Spec.SchedulingGates {
		names = append(names, gate.Name)
	}
	return refuse(SchedulingGates, UnschedulableAndUnresolvable, fmt.Sprintf("waiting for scheduling gates: %v", names))
}
