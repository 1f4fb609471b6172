package status

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/kubelet/kubelettest"
)

// Stories may also say: "failure CONTAINER REASON MESSAGE…", why it could not be started; "not-ready CONTAINER"; "not-started CONTAINER"; "over"; "deadline".
func TestOf(t *testing.T) {
	kubelettest.RunStories(t, func(s *kubelettest.Story) (string, error) {
		in := Input{Pod: s.Pod, Runtime: s.Runtime, Old: &s.Pod.Status, RuntimeName: "containerd", Now: s.Now, HostIPs: []string{"192.0.2.1"}, Failures: map[string]Failure{}}
		notReady, notStarted := map[string]bool{}, map[string]bool{}
		for _, words := range s.Other {
			switch words[0] {
			case "failure":
				in.Failures[words[1]] = Failure{words[2], strings.Join(words[3:], " ")}
			case "not-ready":
				notReady[words[1]] = true
			case "not-started":
				notStarted[words[1]] = true
			case "over":
				in.Terminated = true
			case "deadline":
				in.Failed = &Failure{"DeadlineExceeded", "too long"}
			case "deleted":
				now := metav1.NewTime(s.Now)
				s.Pod.DeletionTimestamp = &now
			case "finished":
			default:
				return "", fmt.Errorf("what is %v?", words)
			}
		}
		plain := in
		in.Ready = func(st *corev1.PodStatus) {
			plain.setReady(st)
			for _, list := range [][]corev1.ContainerStatus{st.ContainerStatuses, st.InitContainerStatuses} {
				for i := range list {
					c := &list[i]
					if notStarted[c.Name] {
						*c.Started, c.Ready = false, false
					}
					c.Ready = c.Ready && !notReady[c.Name]
				}
			}
		}
		got := Of(in)
		if len(s.Other) > 0 && s.Other[len(s.Other)-1][0] == "finished" {
			got = Finished(s.Pod, got)
		}
		in.Old = got
		if again := Of(in); !equal(got, again) && len(s.Other) == 0 {
			return "", fmt.Errorf("decided again, the status is another one:\n%s", describe(again))
		}
		return describe(got), nil
	})
}

// describe tells a status in few words.
func describe(s *corev1.PodStatus) string {
	var b strings.Builder
	b.WriteString(string(s.Phase))
	if s.Reason != "" {
		fmt.Fprintf(&b, " %s: %s", s.Reason, s.Message)
	}
	if s.PodIP != "" {
		fmt.Fprintf(&b, " at %s", s.PodIP)
	}
	b.WriteString("\n")
	for i, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses, s.EphemeralContainerStatuses} {
		for _, c := range list {
			fmt.Fprintf(&b, "%s%s %s", []string{"init ", "", "ephemeral "}[i], c.Name, state(c.State))
			if l := state(c.LastTerminationState); l != "" {
				fmt.Fprintf(&b, ", was %s", l)
			}
			if c.RestartCount > 0 {
				fmt.Fprintf(&b, ", restarts %d", c.RestartCount)
			}
			if c.Ready {
				b.WriteString(", ready")
			}
			b.WriteString("\n")
		}
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.PodScheduled {
			continue
		}
		fmt.Fprintf(&b, "%s=%s", c.Type, c.Status)
		if c.Reason != "" {
			fmt.Fprintf(&b, " %s", c.Reason)
		}
		if c.Message != "" {
			fmt.Fprintf(&b, ": %s", c.Message)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func state(s corev1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return strings.TrimSpace(fmt.Sprintf("ended %d %s", s.Terminated.ExitCode, s.Terminated.Reason))
	case s.Waiting != nil:
		return strings.TrimSpace(fmt.Sprintf("waiting %s %s", s.Waiting.Reason, s.Waiting.Message))
	}
	return ""
}
