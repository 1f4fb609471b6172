package resourcequota

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lines lets requests of the same namespace wait for each other. One of them, the first in line, serves all that wait, itself among
// them; those that come meanwhile wait for the next to do so. No goroutine is needed for it, and no request serves more than once.
type lines struct {
	mu sync.Mutex
	of map[string]*line // of namespaces in which somebody serves or is about to
}

// line is the requests that wait.
type line struct{ waiting []*request }

// join puts a request in line and returns its answer.
func (l *lines) join(ctx context.Context, namespace string, r *request, serve func(context.Context, string, []*request)) error {
	if !l.enter(namespace, r) {
		if lead, ok := l.wait(ctx, namespace, r); !ok {
			return errUnserved
		} else if !lead {
			return r.err
		}
	}
	batch := l.take(namespace)
	defer l.finish(namespace, r, batch) // even if serving panics: others wait for it
	serve(ctx, namespace, batch)
	return r.err
}

// enter puts a request in line and reports whether it is the one to serve.
func (l *lines) enter(namespace string, r *request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	q, busy := l.of[namespace]
	if !busy {
		q = &line{}
		l.of[namespace] = q
	}
	q.waiting = append(q.waiting, r)
	return !busy
}

// wait waits until the request has been served, or is the one to serve: then lead holds. A request that waits too long leaves. If it
// is just being served it may be charged all the same, as requests are that fail later.
func (l *lines) wait(ctx context.Context, namespace string, r *request) (lead, ok bool) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case lead = <-r.turn:
		return lead, true
	case <-timeout.C:
	case <-ctx.Done():
	}
	l.leave(namespace, r)
	return false, false
}

func (l *lines) leave(namespace string, r *request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.of[namespace]
	if q == nil {
		return
	}
	if at := slices.Index(q.waiting, r); at >= 0 {
		q.waiting = slices.Delete(q.waiting, at, at+1)
		if r.leads {
			l.pass(namespace, q)
		}
	}
}

// take returns all that wait.
func (l *lines) take(namespace string) []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.of[namespace]
	batch := q.waiting
	q.waiting = nil
	return batch
}

// finish tells all but the one who served that they have their answer, and lets the next serve.
func (l *lines) finish(namespace string, served *request, batch []*request) {
	for _, r := range batch {
		if r != served {
			r.turn <- false
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass(namespace, l.of[namespace])
}

// pass makes the next in line the one to serve. Nobody gets more than one message, so that sending never waits.
func (l *lines) pass(namespace string, q *line) {
	if len(q.waiting) == 0 {
		delete(l.of, namespace)
		return
	}
	next := q.waiting[0]
	next.leads = true
	next.turn <- true
}
