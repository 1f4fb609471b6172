package probe

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Each line is a plan: when questions are asked, in seconds since the container started. Those in brackets count only if the answer is good.
func TestSchedule(t *testing.T) {
	exec := corev1.ProbeHandler{Exec: &corev1.ExecAction{}}
	for _, test := range []struct {
		name      string
		kind      Kind
		probe     corev1.Probe
		now, late float64
		takes     float64 // each question
		want      string
	}{
		{"readiness is asked early, and then every period", Readiness, corev1.Probe{PeriodSeconds: 3}, 0, 0, 0, "[0] [0.1] [0.3] [0.7] [1.5] 3 6 9 12"},
		{"so is startup, which has all of its first period", Startup, corev1.Probe{PeriodSeconds: 1}, 0, 0, 0, "[0] [0.1] [0.3] [0.7] 1 2 3 4 5"},
		{"a command is asked less often", Readiness, corev1.Probe{ProbeHandler: exec}, 0, 0, 0, "[0] [1] [3] [7] 10 20 30 40 50"},
		{"nothing is asked before the delay", Readiness, corev1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 1}, 0, 0, 0, "[5] [5.1] [5.3] [5.7] 6 7 8 9 10"},
		{"liveness gets a period", Liveness, corev1.Probe{PeriodSeconds: 2}, 0, 0, 0, "2 4 6 8 10 12 14 16 18"},
		{"or its delay", Liveness, corev1.Probe{PeriodSeconds: 10, InitialDelaySeconds: 3}, 0, 0, 0, "3 13 23 33 43 53 63 73 83"},
		{"or a period after startup, if that took longer", Liveness, corev1.Probe{PeriodSeconds: 10, InitialDelaySeconds: 3}, 4, 0, 0, "14 24 34 44 54 64 74 84 94"},
		{"who was asked before is asked later", Readiness, corev1.Probe{PeriodSeconds: 10, InitialDelaySeconds: 3}, 100, 104, 0, "104 114 124 134 144 154 164 174 184"},
		{"early questions wait for the answer", Readiness, corev1.Probe{PeriodSeconds: 3}, 0, 0, 0.5, "[0] [0.6] [1.3] [2.2] 3 6 9 12 15"},
		{"a slow question is followed at once by one", Liveness, corev1.Probe{PeriodSeconds: 1}, 0, 0, 2.25, "1 3.25 5.5 7.75 10 12.25 14.5 16.75 19"},
	} {
		start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
		var late time.Time
		if test.late > 0 {
			late = at(test.late)
		}
		s := newSchedule(test.kind, &test.probe, start, at(test.now), late)
		var asked, answered time.Time
		var got []string
		early, now := 0, at(test.now)
		for range 9 {
			next, counts := s.next(asked, answered, early)
			if next.After(now) {
				now = next
			}
			text := fmt.Sprint(now.Sub(start).Seconds())
			if !counts {
				early++
				text = "[" + text + "]"
			}
			got = append(got, text)
			asked, now = now, now.Add(time.Duration(test.takes*float64(time.Second)))
			answered = now
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestStreak(t *testing.T) {
	p := &corev1.Probe{SuccessThreshold: 2, FailureThreshold: 3}
	var c streak
	var got []string
	for _, r := range "++--+---+-++" {
		text := string(r)
		if c.count(r == '+', p) {
			text += "!"
		}
		got = append(got, text)
	}
	if got, want := strings.Join(got, ""), "++!--+---!+-++!"; got != want {
		t.Errorf("believed %s, want %s", got, want)
	}
	var other streak
	if p := (&corev1.Probe{}); !other.count(true, p) || other.count(false, p) || other.count(false, p) || !other.count(false, p) {
		t.Error("a probe without thresholds believes one success and three failures")
	}
}
