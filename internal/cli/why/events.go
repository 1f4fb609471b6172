package why

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/journey"
)

// told are the texts by which Events and conditions tell of a refusal, with what they say of it.
var told = []struct {
	pattern      *regexp.Regexp
	by, verdict  string
	name, within int // numbers of groups; 0 if the text does not say
	message      int
}{
	{regexp.MustCompile(`(?s)admission webhook "([^"]+)" denied the request.*$`), "webhook", journey.Denied, 1, 0, 0},
	{regexp.MustCompile(`(?s)failed calling webhook "([^"]+)": .*$`), "webhook", journey.Failed, 1, 0, 0},
	{regexp.MustCompile(`(?s)ValidatingAdmissionPolicy '([^']+)' with binding '([^']+)' denied request: (.*)$`), journey.ValidatingPolicy, journey.Denied, 1, 2, 3},
	{regexp.MustCompile(`(?s)policy '([^']+)' with binding '([^']+)' denied request: (.*)$`), journey.MutatingPolicy, journey.Failed, 1, 2, 3},
}

// toldByEvents finds what Events and conditions tell of refusals that the server does not remember any more.
func toldByEvents(s *subject) (found []finding) {
	if s.workload == nil || len(s.failures) > 0 || s.workload.satisfied() {
		return nil
	}
	said := map[string]bool{}
	add := func(owner, message, evidence string) {
		f := parseRefusal(message)
		if f == nil {
			return
		}
		f.Verb, f.Resource, f.GenerateName = "create", "pods", owner+"-"
		if text := sentence(f); !said[text] {
			said[text] = true
			found = append(found, finding{text, []string{evidence}})
		}
	}
	events := slices.Clone(s.events)
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return when(&b).Compare(when(&a)) })
	for i := range events {
		if e := &events[i]; e.Type == corev1.EventTypeWarning {
			add(e.InvolvedObject.Name, e.Message, ago(s.now, when(e))+", as an Event of "+strings.ToLower(e.InvolvedObject.Kind)+"/"+e.InvolvedObject.Name+" says ("+e.Reason+")")
		}
	}
	if len(found) > 0 {
		return found
	}
	for _, w := range append([]*workload{s.workload}, s.workload.replicaSets...) {
		for _, c := range w.Status.Conditions {
			if c.Type == "ReplicaFailure" && c.Status == corev1.ConditionTrue {
				add(w.Name, c.Message, "since "+c.LastTransitionTime.Local().Format(time.DateTime)+", as the condition ReplicaFailure says")
			}
		}
	}
	return found
}

// parseRefusal returns what a text tells of a refusal; nil if it does not.
func parseRefusal(text string) *journey.Failure {
	for _, t := range told {
		m := t.pattern.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		f := &journey.Failure{By: t.by, Verdict: t.verdict, Name: m[t.name], Message: m[t.message]}
		if t.within > 0 {
			f.Configuration = m[t.within]
		}
		return f
	}
	return nil
}
