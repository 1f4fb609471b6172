package resourcequota

import (
	"context"
	"slices"
	"sync"
	"time"
)

// queues batches the requests of each namespace. The first waiting request is the leader: it charges all that wait, itself included, while
// requests that arrive meanwhile wait for the next leader. This needs no goroutine, and no request leads more than once.
type queues struct {
	mu          sync.Mutex
	byNamespace map[string]*queue // the namespaces that have a leader
}

// queue holds the requests of one namespace that wait to be charged.
type queue struct{ waiting []*request }

// charge queues a request, waits until it is charged, by itself or by another leader, and returns the outcome.
func (qs *queues) charge(ctx context.Context, namespace string, r *request, chargeBatch func(context.Context, string, []*request)) error {
	if !qs.enqueue(namespace, r) {
		if leader, ok := qs.wait(ctx, namespace, r); !ok {
			return errTimedOut
		} else if !leader {
			return r.err
		}
	}
	batch := qs.dequeueAll(namespace)
	defer qs.finish(namespace, r, batch) // even if charging panics: the others wait for it
	chargeBatch(ctx, namespace, batch)
	return r.err
}

// enqueue queues a request and reports whether it is the leader.
func (qs *queues) enqueue(namespace string, r *request) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q, busy := qs.byNamespace[namespace]
	if !busy {
		q = &queue{}
		qs.byNamespace[namespace] = q
	}
	q.waiting = append(q.waiting, r)
	return !busy
}

// wait waits until the request has been charged or is the leader. ok is false if it waited too long and left the queue: it may be charged
// all the same if its batch is in flight, as are requests that fail after admission.
func (qs *queues) wait(ctx context.Context, namespace string, r *request) (leader, ok bool) {
	timeout := time.NewTimer(chargeTimeout)
	defer timeout.Stop()
	select {
	case leader = <-r.turn:
		return leader, true
	case <-timeout.C:
	case <-ctx.Done():
	}
	qs.leave(namespace, r)
	return false, false
}

func (qs *queues) leave(namespace string, r *request) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byNamespace[namespace]
	if q == nil {
		return
	}
	if at := slices.Index(q.waiting, r); at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
		if r.isLeader {
			qs.appointLeader(namespace, q)
		}
	}
}

// dequeueAll removes and returns all requests that wait.
func (qs *queues) dequeueAll(namespace string) []*request {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byNamespace[namespace]
	batch := q.waiting
	q.waiting = nil
	return batch
}

// finish wakes the requests of the batch other than the leader, and appoints the next leader.
func (qs *queues) finish(namespace string, leader *request, batch []*request) {
	for _, r := range batch {
		if r != leader {
			r.turn <- false
		}
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.appointLeader(namespace, qs.byNamespace[namespace])
}

// appointLeader makes the first waiting request the leader. No request gets more than one message, so that sending never blocks.
func (qs *queues) appointLeader(namespace string, q *queue) {
	if len(q.waiting) == 0 {
		delete(qs.byNamespace, namespace)
		return
	}
	next := q.waiting[0]
	next.isLeader = true
	next.turn <- true
}
