package probe

import (
	"cmp"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The defaults of probes. The API server sets them; a pod from a file may come without.
const (
	defaultPeriod           = 10
	defaultTimeout          = 1
	defaultSuccessThreshold = 1
	defaultFailureThreshold = 3
)

func seconds(n, otherwise int32) time.Duration {
	return time.Duration(cmp.Or(n, otherwise)) * time.Second
}

// The interval between early probes doubles.
const (
	earlyInterval     = 100 * time.Millisecond
	earlyExecInterval = time.Second // a process costs more than a request
)

// schedule is when a probe is run: first early probes, of which only successes count, then regular ones every period.
type schedule struct {
	begin  time.Time     // when the first probe is run
	first  time.Time     // when the first regular probe is run
	period time.Duration // the interval between regular probes
	early  time.Duration // the first interval between early probes; none are run if zero
}

// newSchedule returns the schedule of a probe that may be run from now on, of a container that started at start. late, if not zero, is when to begin with a
// container that was probed by an earlier process.
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
		s.early = earlyExecInterval
	case kind != Liveness:
		s.early = earlyInterval
	case s.begin.Equal(delayed) && p.InitialDelaySeconds > 0:
		s.first = s.begin // the initial delay is the time it needs
	}
	return s
}

// next returns when to run the probe after one that began and ended at the given times, and whether a failure counts. early is how many early probes were run.
func (s *schedule) next(began, ended time.Time, early int) (at time.Time, counts bool) {
	if s.early > 0 {
		at = s.begin
		if early > 0 {
			at = ended.Add(s.early << min(early-1, 20))
		}
		if at.Before(s.first) {
			return at, false
		}
	}
	if began.Before(s.first) {
		return s.first, true
	}
	// A probe that took longer than a period is followed by the next one at once, but by one only.
	return s.first.Add((began.Sub(s.first)/s.period + 1) * s.period), true
}

// stopEarly ends the early probes, after a success.
func (s *schedule) stopEarly() { s.early = 0 }

// streak counts equal results in a row.
type streak struct {
	good bool
	run  int32
}

// count adds a result, and reports whether its threshold is reached.
func (t *streak) count(good bool, p *corev1.Probe) (reached bool) {
	if t.good != good {
		t.good, t.run = good, 0
	}
	t.run++
	if good {
		return t.run >= cmp.Or(p.SuccessThreshold, defaultSuccessThreshold)
	}
	return t.run >= cmp.Or(p.FailureThreshold, defaultFailureThreshold)
}
