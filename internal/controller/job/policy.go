package job

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// verdict is the result of applying a pod failure policy to a failed pod.
type verdict struct {
	counts    bool   // the failure counts towards the back-off limits
	failIndex bool   // no more pods are created for its index
	failJob   string // if not empty, the Job fails with that message
}

// matchFailurePolicy applies the first rule of a policy that matches a failed pod. Without one the failure counts.
func matchFailurePolicy(policy *batchv1.PodFailurePolicy, pod *corev1.Pod) verdict {
	if policy == nil {
		return verdict{counts: true}
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		var message string
		if rule.OnExitCodes != nil {
			container := matchExitCodes(rule.OnExitCodes, pod)
			if container == nil {
				continue
			}
			message = fmt.Sprintf("Container %s for pod %s/%s failed with exit code %v matching %v rule at index %d",
				container.Name, pod.Namespace, pod.Name, container.State.Terminated.ExitCode, rule.Action, i)
		} else {
			condition := matchConditions(rule.OnPodConditions, pod)
			if condition == nil {
				continue
			}
			message = fmt.Sprintf("Pod %s/%s has condition %v matching %v rule at index %d", pod.Namespace, pod.Name, condition.Type, rule.Action, i)
		}
		switch rule.Action {
		case batchv1.PodFailurePolicyActionIgnore:
			return verdict{}
		case batchv1.PodFailurePolicyActionFailIndex:
			return verdict{counts: true, failIndex: true}
		case batchv1.PodFailurePolicyActionCount:
			return verdict{counts: true}
		case batchv1.PodFailurePolicyActionFailJob:
			return verdict{counts: true, failJob: message}
		}
	}
	return verdict{counts: true}
}

// matchExitCodes returns the first container that terminated with one of the exit codes. Containers that succeeded never match.
func matchExitCodes(r *batchv1.PodFailurePolicyOnExitCodesRequirement, pod *corev1.Pod) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			s := &list[i]
			if s.State.Terminated == nil || s.State.Terminated.ExitCode == 0 || r.ContainerName != nil && *r.ContainerName != s.Name {
				continue
			}
			in := slices.Contains(r.Values, s.State.Terminated.ExitCode)
			if in && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn || !in && r.Operator == batchv1.PodFailurePolicyOnExitCodesOpNotIn {
				return s
			}
		}
	}
	return nil
}

func matchConditions(patterns []batchv1.PodFailurePolicyOnPodConditionsPattern, pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if slices.ContainsFunc(patterns, func(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
			return p.Type == c.Type && p.Status == c.Status
		}) {
			return c
		}
	}
	return nil
}

// matchSuccessPolicy reports whether the succeeded indexes meet the policy, and by which rule.
func matchSuccessPolicy(policy *batchv1.SuccessPolicy, completions int, succeeded indexes) (message string, met bool) {
	if policy == nil || len(succeeded) == 0 {
		return "", false
	}
	for i := range policy.Rules {
		rule := &policy.Rules[i]
		enough := false
		if rule.SucceededIndexes != nil {
			wanted := parseIndexes(*rule.SucceededIndexes, completions)
			have := wanted.common(succeeded)
			enough = len(wanted) > 0 && (have == wanted.total() || rule.SucceededCount != nil && have >= int(*rule.SucceededCount))
		} else {
			enough = rule.SucceededCount != nil && succeeded.total() >= int(*rule.SucceededCount)
		}
		if enough {
			return fmt.Sprintf("Matched rules at index %d", i), true
		}
	}
	return "", false
}
