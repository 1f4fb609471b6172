package probe

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What holds of a probe that says nothing else. The API fills this in; a pod from a file may come without.
const (
	defaultPeriod           = 10
	defaultTimeout          = 1
	defaultSuccessThreshold = 1
	defaultFailureThreshold = 3
)

func seconds(n, otherwise int32) time.Duration {
	return time.Duration(cmp.Or(n, otherwise)) * time.Second
}

// Early questions come after pauses that double.
const (
	earlyPause     = 100 * time.Millisecond
	earlyExecPause = time.Second // a process costs more than a request
)

// schedule says when a probe is asked. It begins with early questions, if early is set; those that count come every period.
type schedule struct {
	begin, first  time.Time // of all questions, and of those that count
	period, early time.Duration
}

// newSchedule plans the questions of a probe that may be asked from now on, of a container that started at start. late, if not zero, is when to
// begin with one that has been asked before.
func newSchedule(kind Kind, p *corev1.Probe, start, now, late time.Time) schedule {
	s := schedule{begin: now, period: seconds(p.PeriodSeconds, defaultPeriod)}
	if !late.IsZero() {
		s.begin, s.first = late, late
		return s
	}
	delayed := start.Add(time.Duration(p.InitialDelaySeconds) * time.Second)
	if delayed.After(now) {
		s.begin = delayed
	}
	s.first = s.begin.Add(s.period)
	switch {
	case kind != Liveness && p.Exec != nil:
		s.early = earlyExecPause
	case kind != Liveness:
		s.early = earlyPause
	case s.begin.Equal(delayed) && p.InitialDelaySeconds > 0:
		s.first = s.begin // it has been given time
	}
	return s
}

// next returns when to ask after a question that was asked and answered at the given times, and whether a bad answer counts. early is how
// many early questions there were.
func (s *schedule) next(asked, answered time.Time, early int) (at time.Time, counts bool) {
	if s.early > 0 {
		at = s.begin
		if early > 0 {
			at = answered.Add(s.early << min(early-1, 20))
		}
		if at.Before(s.first) {
			return at, false
		}
	}
	if asked.Before(s.first) {
		return s.first, true
	}
	// A question that took long is followed by the next at once, but only by one.
	return s.first.Add((asked.Sub(s.first)/s.period + 1) * s.period), true
}

// noMoreEarly ends the early questions: there was a good answer.
func (s *schedule) noMoreEarly() { s.early = 0 }

// tally counts equal answers in a row.
type tally struct {
	good bool
	run  int32
}

// count adds an answer and says whether there were enough of its kind to believe it.
func (t *tally) count(good bool, p *corev1.Probe) (believed bool) {
	if t.good != good {
		t.good, t.run = good, 0
	}
	t.run++
	if good {
		return t.run >= cmp.Or(p.SuccessThreshold, defaultSuccessThreshold)
	}
	return t.run >= cmp.Or(p.FailureThreshold, defaultFailureThreshold)
}
