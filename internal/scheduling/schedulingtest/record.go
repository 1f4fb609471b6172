package schedulingtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Record holds the results of a scheduler's plugins for a state, one line for each plugin and question. A plugin that refuses no node, or scores all 0,
// has no line: whether it was called at all is not compared.
type Record struct {
	Seed  uint64
	Lines []string
}

func (r *Record) add(pod int, question, plugin, answer string) {
	r.Lines = append(r.Lines, fmt.Sprintf("%d/%d %s %s %s", r.Seed, pod, question, plugin, answer))
}

// Verdict returns a refusal in a few letters: U may be helped by preemption, X not, E is an error.
func Verdict(code string, reasons []string) string {
	if code == "" {
		return ""
	}
	reasons = slices.Sorted(slices.Values(reasons))
	return code + " " + strings.Join(reasons, ", ")
}

// Filter records a plugin's verdict on each node, "" if the pod fits.
func (r *Record) Filter(pod int, question, plugin string, verdicts []string) {
	if !slices.ContainsFunc(verdicts, func(v string) bool { return v != "" }) {
		return
	}
	r.add(pod, question, plugin, strings.Join(verdicts, "|"))
}

// Score records raw and normalized scores.
func (r *Record) Score(pod int, plugin string, raw, normalized []int64) {
	if slices.ContainsFunc(normalized, func(s int64) bool { return s != 0 }) {
		r.add(pod, "score", plugin, fmt.Sprintf("%v %v", raw, normalized))
	}
}

// Wakes records which events may make the pod pass the plugin.
func (r *Record) Wakes(pod int, plugin string, wakes []bool) {
	var b strings.Builder
	for _, w := range wakes {
		b.WriteByte("01"[map[bool]int{true: 1}[w]])
	}
	if strings.Contains(b.String(), "1") {
		r.add(pod, "wake", plugin, b.String())
	}
}

// Compare returns where two records differ. A difference names seed, pod, question and plugin, so that it can be reproduced.
func Compare(want, got []string) []string {
	index := func(lines []string) map[string]string {
		m := map[string]string{}
		for _, l := range lines {
			parts := strings.SplitN(l, " ", 4)
			m[strings.Join(parts[:3], " ")] = parts[3]
		}
		return m
	}
	w, g := index(want), index(got)
	keys := slices.Sorted(maps.Keys(w))
	for k := range g {
		if _, both := w[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []string
	for _, k := range keys {
		if w[k] != g[k] {
			out = append(out, fmt.Sprintf("%s\n\tkube-scheduler: %s\n\tskiff:          %s", k, w[k], g[k]))
		}
	}
	return out
}
