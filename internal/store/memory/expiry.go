package memory

import (
	"container/heap"
	"time"
)

// expiry is the time at which a key expires.
type expiry struct {
	key   string
	at    time.Time
	index int // the position in the queue
}

// expireAfter sets, moves or, with a zero ttl, cancels the expiry of a key.
func (s *Store) expireAfter(e *entry, ttl time.Duration) {
	if e.expiry != nil {
		heap.Remove(&s.expiries, e.expiry.index)
		e.expiry = nil
	}
	if ttl == 0 {
		return
	}
	s.expireAt(e, s.clock.Now().Add(ttl))
}

func (s *Store) expireAt(e *entry, at time.Time) {
	e.expiry = &expiry{key: e.key, at: at}
	heap.Push(&s.expiries, e.expiry)
	if !s.expiryStarted {
		s.expiryStarted = true
		s.running.Go(s.expire)
	}
	if e.expiry.index == 0 {
		select {
		case s.expiryKick <- struct{}{}:
		default:
		}
	}
}

// expire deletes keys when they expire, until the store is closed.
func (s *Store) expire() {
	for {
		wait, pending := s.removeExpired()
		if !pending {
			select {
			case <-s.expiryKick:
			case <-s.done:
				return
			}
			continue
		}
		timer := s.clock.NewTimer(wait)
		select {
		case <-timer.C():
		case <-s.expiryKick:
		case <-s.done:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// removeExpired deletes the expired keys and returns the time until the next expiry, if there is one.
func (s *Store) removeExpired() (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	for len(s.expiries) > 0 && !s.closed {
		next := s.expiries[0]
		if next.at.After(now) {
			return next.at.Sub(now), true
		}
		s.remove(next.key)
	}
	return 0, false
}

// expiryQueue is a heap ordered by time of expiry.
type expiryQueue []*expiry

func (q expiryQueue) Len() int           { return len(q) }
func (q expiryQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q expiryQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *expiryQueue) Push(x any) {
	e := x.(*expiry)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *expiryQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return e
}
