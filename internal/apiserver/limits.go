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

// enter takes a place, which leave gives back.
func (l *limits) enter(ctx context.Context, write bool) (leave func(), ok bool) {
	places := l.reads
	if write {
		places = l.writes
	}
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	default:
	}
	if l.waiting.Add(1) > maxWaiting {
		l.waiting.Add(-1)
		return nil, false
	}
	defer l.waiting.Add(-1)
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case places <- struct{}{}:
		return func() { <-places }, true
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, false
}
