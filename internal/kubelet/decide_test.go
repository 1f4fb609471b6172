package kubelet

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/kubelettest"
	"skiff/internal/kubelet/probe"
	"skiff/internal/kubelet/status"
)

// Stories may also say: "backoff CONTAINER DELAY at=TIME", how long the container is not started again and since when that is so; "failing CONTAINER
// startup|liveness"; "not-started SIDECAR"; "restart-all".
func TestDecide(t *testing.T) {
	kubelettest.RunStories(t, func(s *kubelettest.Story) (string, error) {
		o := observed{pod: s.Pod, runtime: s.Runtime, now: s.Now, backOffs: map[string]backOff{}}
		failing, pending := map[string]probe.Kind{}, map[string]bool{}
		for _, words := range s.Other {
			switch words[0] {
			case "backoff":
				delay, err := time.ParseDuration(words[2])
				if err != nil {
					return "", err
				}
				o.backOffs[backOffKey(spec(s.Pod, words[1]))] = backOff{delay, kubelettest.Epoch}
			case "failing":
				failing[words[1]] = probe.Kind(strings.ToUpper(words[2][:1]) + words[2][1:])
			case "not-started":
				pending[words[1]] = true
			case "restart-all":
				o.restartAll = true
			default:
				return "", fmt.Errorf("what is %v?", words)
			}
		}
		o.probeFailures = func(id string) *probe.Failure {
			for _, c := range s.Runtime.Containers {
				if kind, ok := failing[c.Name]; ok && c.ID == id {
					return &probe.Failure{Kind: kind, Message: fmt.Sprintf("Container %s failed %s probe", c.Name, strings.ToLower(string(kind)))}
				}
			}
			return nil
		}
		o.status = status.Of(status.Input{Pod: s.Pod, Runtime: s.Runtime, Old: &s.Pod.Status, RuntimeName: "containerd", Now: s.Now})
		for i := range o.status.InitContainerStatuses {
			if c := &o.status.InitContainerStatuses[i]; pending[c.Name] {
				no := false
				c.Started = &no
			}
		}
		return tell(s, decide(o)), nil
	})
}

func tell(s *kubelettest.Story, p plan) string {
	var b strings.Builder
	if p.StopPod {
		b.WriteString("stop the pod\n")
	}
	for _, x := range p.Stop {
		fmt.Fprintf(&b, "stop %s: %s\n", x.ID, x.Message)
	}
	for _, x := range p.Remove {
		how := ""
		if x.Kill {
			how = ", killing it"
		}
		fmt.Fprintf(&b, "remove %s%s\n", x.ID, how)
	}
	if p.Sandbox != nil {
		fmt.Fprintf(&b, "make sandbox %d\n", p.Attempt)
	}
	for _, x := range p.Start {
		fmt.Fprintf(&b, "start %s %s\n", x.Kind, x.Container.Name)
	}
	for _, x := range p.Wait {
		fmt.Fprintf(&b, "start %s at %v, after a back-off of %v\n", x.Container.Name, x.Until.Sub(kubelettest.Epoch), x.Delay)
	}
	if b.Len() == 0 {
		return "nothing"
	}
	return b.String()
}

// Back-offs double up to five minutes, and start anew for a container that ran long enough.
func TestBackOff(t *testing.T) {
	now := kubelettest.Epoch
	var b backOff
	if !b.until(now).IsZero() {
		t.Error("a container that ended once is not started at once")
	}
	for _, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
		b = b.next(now, now)
		if want *= time.Second; b.delay != want || !b.until(now).Equal(now.Add(want)) {
			t.Errorf("delay %v until %v, want %v", b.delay, b.until(now), want)
		}
		now = now.Add(b.delay)
	}
	if later := now.Add(11 * time.Minute); !b.until(later).IsZero() || b.next(later, later).delay != 10*time.Second {
		t.Error("a container that ran for long is still backed off")
	}
}

// Another image is another try.
func TestBackOffKey(t *testing.T) {
	a, b := corev1.Container{Name: "c", Image: "a"}, corev1.Container{Name: "c", Image: "b"}
	if backOffKey(&a) == backOffKey(&b) {
		t.Error("containers with different images share a back-off")
	}
}
