package hollow

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what becomes of pods into the stories")

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 300e6, time.UTC)

// TestLives runs the stories in testdata. A story begins with a title and a pod; "from A to B" lets time pass, at every moment that decide asks for; what is
// reported is below the line. Further parts change the pod as other clients would.
func TestLives(t *testing.T) {
	const file = "testdata/lives.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	var w *podStory
	for _, part := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
		above, want, story := strings.Cut(part, "\n----")
		if !story {
			told = append(told, part)
			continue
		}
		if strings.HasPrefix(above, "#") {
			w = &podStory{t: t}
		}
		got := w.tell(above)
		if want = strings.TrimSpace(want); got != want && !*update {
			t.Errorf("%s\ngot:\n%s\nwant:\n%s", above, got, want)
		}
		told = append(told, above+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(told, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// podStory is a pod and the time.
type podStory struct {
	t     *testing.T
	pod   *corev1.Pod
	since time.Time
	told  []string
}

func (w *podStory) tell(above string) string {
	w.told = nil
	lines := strings.Split(above, "\n")
	for i := 0; i < len(lines); i++ {
		words := strings.Fields(lines[i])
		switch words[0] {
		case "#":
		case "pod":
			j := i + 1
			for j < len(lines) && strings.HasPrefix(lines[j], " ") {
				j++
			}
			w.make(words[1], strings.Join(lines[i+1:j], "\n"))
			i = j - 1
		case "delete":
			var grace int64
			fmt.Sscanf(words[1], "grace=%d", &grace)
			w.pod.DeletionGracePeriodSeconds = &grace
		case "condition":
			w.condition(corev1.PodConditionType(words[1]), corev1.ConditionStatus(words[2]))
		case "image":
			w.pod.Spec.Containers[0].Image = words[2]
			w.pod.Generation++
		case "from":
			w.pass(words[1], words[3])
		default:
			w.t.Fatalf("%q?", lines[i])
		}
	}
	if len(w.told) == 0 {
		return "nothing"
	}
	return strings.Join(w.told, "\n")
}

func (w *podStory) make(name, text string) {
	w.pod = &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), w.pod); err != nil {
		w.t.Fatal(err)
	}
	w.pod.Name, w.pod.Namespace, w.pod.UID, w.pod.Generation = name, "default", types.UID("uid-of-"+name), 1
	if w.pod.Spec.RestartPolicy == "" {
		w.pod.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
	w.pod.Status.Phase = corev1.PodPending
	w.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(epoch.Add(-time.Minute))}}
}

func (w *podStory) condition(kind corev1.PodConditionType, status corev1.ConditionStatus) {
	i := slices.IndexFunc(w.pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		w.pod.Status.Conditions = append(w.pod.Status.Conditions, corev1.PodCondition{Type: kind})
		i = len(w.pod.Status.Conditions) - 1
	}
	w.pod.Status.Conditions[i].Status = status
}

func (w *podStory) pass(from, to string) {
	parse := func(s string) time.Time {
		d, err := time.ParseDuration(s)
		if err != nil {
			w.t.Fatal(err)
		}
		return epoch.Add(d)
	}
	now, end := parse(from), parse(to)
	if g := w.pod.DeletionGracePeriodSeconds; g != nil && w.pod.DeletionTimestamp == nil {
		at := metav1.NewTime(now.Add(time.Duration(*g) * time.Second))
		w.pod.DeletionTimestamp = &at
	}
	l := behaviour{runsFor: 10 * time.Second}
	for range 100 {
		s := decide(w.pod, l, podNetwork{"172.16.0.1", func() []string { return []string{"10.0.0.7"} }}, w.since, now)
		lazy := idle(w.pod, l)
		if lazy && (s.status != nil || s.remove || !s.requeueAt.IsZero()) {
			w.t.Errorf("idle, but %+v", s)
		}
		if s.status != nil {
			w.report(s.status, now)
		}
		if s.remove {
			w.told = append(w.told, fmt.Sprintf("%v removed", now.Sub(epoch)))
			return
		}
		if s.status != nil {
			continue // the status was reported: decide again
		}
		if s.requeueAt.IsZero() || s.requeueAt.After(end) {
			return
		}
		now = s.requeueAt
	}
	w.t.Fatal("it goes on and on")
}

// report stores a status as the API would, with whole seconds, and prints what changed.
func (w *podStory) report(s *corev1.PodStatus, now time.Time) {
	data, err := yaml.Marshal(s)
	if err != nil {
		w.t.Fatal(err)
	}
	before := w.pod.Status
	w.pod.Status = corev1.PodStatus{}
	if err := yaml.Unmarshal(data, &w.pod.Status); err != nil {
		w.t.Fatal(err)
	}
	w.since = now
	w.told = append(w.told, fmt.Sprintf("%v %s %s", now.Sub(epoch), s.Phase, s.Reason))
	w.told[len(w.told)-1] = strings.TrimSpace(w.told[len(w.told)-1])
	for _, c := range s.Conditions {
		i := slices.IndexFunc(before.Conditions, func(b corev1.PodCondition) bool { return b.Type == c.Type })
		if i >= 0 && before.Conditions[i].Status == c.Status && before.Conditions[i].Reason == c.Reason {
			if !c.LastTransitionTime.Equal(&before.Conditions[i].LastTransitionTime) {
				w.t.Errorf("the time of %s changed", c.Type)
			}
			continue
		}
		w.told = append(w.told, strings.TrimSpace(fmt.Sprintf("  %s %s %s %s", c.Type, c.Status, c.Reason, c.Message)))
		w.told[len(w.told)-1] = "  " + w.told[len(w.told)-1]
	}
	for _, c := range append(slices.Clone(s.InitContainerStatuses), s.ContainerStatuses...) {
		w.told = append(w.told, "  "+describe(c))
	}
}

func describe(c corev1.ContainerStatus) string {
	s := fmt.Sprintf("container %s %s:", c.Name, c.Image)
	state := func(s corev1.ContainerState) string {
		switch {
		case s.Running != nil:
			return fmt.Sprintf("running since %v", s.Running.StartedAt.Truncate(time.Second).Sub(epoch.Truncate(time.Second)))
		case s.Waiting != nil:
			return strings.TrimSpace(fmt.Sprintf("waiting %s %s", s.Waiting.Reason, s.Waiting.Message))
		case s.Terminated != nil:
			return fmt.Sprintf("terminated %d %s", s.Terminated.ExitCode, s.Terminated.Reason)
		}
		return ""
	}
	s += " " + state(c.State)
	if last := state(c.LastTerminationState); last != "" {
		s += ", before " + last
	}
	if c.RestartCount > 0 {
		s += fmt.Sprintf(", restarts %d", c.RestartCount)
	}
	if c.Ready {
		s += ", ready"
	}
	return s
}
