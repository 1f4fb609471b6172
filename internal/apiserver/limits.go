package apiserver

import (
	"context"
	"sync/atomic"
	"time"
)

// limits bound how many requests run at once, those that write apart from those that read. A request over the limit waits a little in a
// bounded queue, and is then told to come back later (429).
type limits struct {
	reads, writes chan struct{}
	waiting       atomic.Int64
}

const (
	maxWaiting = 5000
	maxWait    = 15 * time.Second
)

func newLimits(reads, writes int) *limits {
	return &limits{reads: make(chan struct{}, reads), writes: make(chan struct{}, writes)}
}

// enter takes a place, which leave gives back, and tells how long it waited for one.
func (l *limits) enter(ctx context.Context, write bool) (leave func(), waited time.Duration, ok bool) {
	places := l.reads
	if write {
		places = l.writes
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, 0, true
	default:
	}
	if l.waiting.Add(1) > maxWaiting {
		l.waiting.Add(-1)
		return nil, 0, false
	}
	defer l.waiting.Add(-1)
	began := time.Now()
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return func() { <-places }, time.Since(began), true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, time.Since(began), false
}
