package authorization

import (
	"encoding/json"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Decided returns the answer of a SubjectAccessReview.
func Decided(s authorizationv1.SubjectAccessReviewStatus) []string {
	word := "no"
	switch {
	case s.Allowed:
		word = "yes"
	case s.Denied:
		word = "denied"
	}
	answers := []string{strings.TrimSpace(word + " " + s.Reason)}
	if s.EvaluationError != "" {
		answers = append(answers, "error "+s.EvaluationError)
	}
	return answers
}

// Listed returns the answer of a SelfSubjectRulesReview: a line for each rule, sorted.
func Listed(s authorizationv1.SubjectRulesReviewStatus) []string {
	var lines []string
	add := func(rule any) {
		line, err := json.Marshal(rule)
		if err != nil {
			panic(err) // cannot happen: rules consist of strings
		}
		lines = append(lines, string(line))
	}
	for _, r := range s.ResourceRules {
		add(r)
	}
	for _, r := range s.NonResourceRules {
		add(r)
	}
	slices.Sort(lines)
	if s.Incomplete {
		lines = append(lines, "incomplete")
	}
	if s.EvaluationError != "" {
		lines = append(lines, "error "+s.EvaluationError)
	}
	return lines
}

// Written returns the answer to a write: its error, or that it is allowed.
func Written(err error) []string {
	if err != nil {
		return []string{"no " + err.Error()}
	}
	return []string{"yes"}
}

// Right reports whether an answer is one of those recorded.
func (q *Question) Right(answer []string) bool {
	if q.Access != nil && len(answer) == 1 {
		return slices.Contains(q.Answers, answer[0])
	}
	return slices.Equal(q.Answers, answer)
}
