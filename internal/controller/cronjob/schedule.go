package cronjob

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
)

// manyMissed is the number of missed starts beyond which an Event asks whether the clock is right.
const manyMissed = 100

// zoneOf returns spec.timeZone, or "".
func zoneOf(cronJob *batchv1.CronJob) string {
	if cronJob.Spec.TimeZone == nil {
		return ""
	}
	return *cronJob.Spec.TimeZone
}

// parse returns a CronJob's schedule. It recovers from panics of the parser on some malformed schedules, such as "TZ=0", which old objects may
// have: what is created has been validated.
func parse(cronJob *batchv1.CronJob) (s cron.Schedule, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("invalid schedule format: %v", r)
		}
	}()
	text := cronJob.Spec.Schedule
	if zone := zoneOf(cronJob); zone != "" && !zoneInSchedule(cronJob) {
		text = "TZ=" + zone + " " + text
	}
	return cron.ParseStandard(text)
}

func zoneInSchedule(cronJob *batchv1.CronJob) bool {
	return strings.Contains(cronJob.Spec.Schedule, "TZ")
}

// starts is what a schedule says about the time until now.
type starts struct {
	due    time.Time // the latest start until now; zero if there is none
	missed int       // how many there are until now, counted up to manyMissed+1
	next   time.Time // the first start after now
}

// startsOf returns the starts of a schedule after from and until now. Those of "@every" are counted from since, which is not after from.
func startsOf(s cron.Schedule, since, from, now time.Time) (starts, error) {
	if every, ok := s.(cron.ConstantDelaySchedule); ok {
		return startsEvery(every.Delay, since.Truncate(time.Second), from, now), nil
	}
	var found starts
	first := s.Next(from)
	if first.IsZero() { // "0 0 31 2 *" is well-formed
		return found, errors.New("time difference between two schedules is less than 1 second")
	}
	t := first
	for ; !t.After(now) && !t.IsZero() && found.missed <= manyMissed; t = s.Next(t) {
		found.due = t
		found.missed++
	}
	if found.missed > manyMissed {
		found.due = latest(s, from, now)
		t = s.Next(now)
	}
	found.next = t
	return found, nil
}

func startsEvery(delay time.Duration, since, from, now time.Time) starts {
	if since.After(now) {
		return starts{next: since.Add(delay)}
	}
	count := now.Sub(since) / delay
	found := starts{next: since.Add((count + 1) * delay)}
	if missed := count - max(from.Sub(since), 0)/delay; missed > 0 {
		found.due, found.missed = since.Add(count*delay), int(min(missed, manyMissed+1))
	}
	return found
}

// latest returns the last start until now of a schedule that has one after from. It halves the time between them, as years may lie there: the
// start that follows a time is until now for all times before the last start, and for none after it.
func latest(s cron.Schedule, from, now time.Time) time.Time {
	before, after := from, now
	for after.Sub(before) > time.Second {
		middle := before.Add(after.Sub(before) / 2)
		if t := s.Next(middle); t.IsZero() || t.After(now) {
			after = middle
		} else {
			before = middle
		}
	}
	return s.Next(before)
}
