package resourcequota

import (
	"context"
	"testing"
)

// A leader that times out before it charges hands over to the next request.
func TestLeaderTimesOut(t *testing.T) {
	qs := queues{byNamespace: map[string]*queue{}}
	a, b, c := newRequest(), newRequest(), newRequest()
	if !qs.enqueue("ns", a) || qs.enqueue("ns", b) || qs.enqueue("ns", c) {
		t.Fatal("the first request must be the leader, and no other")
	}
	qs.byNamespace["ns"].waiting = qs.byNamespace["ns"].waiting[1:] // a charges itself alone
	qs.finish("ns", a, []*request{a})
	if !b.isLeader || c.isLeader {
		t.Fatal("the next request must be the leader")
	}
	qs.leave("ns", b)
	if !c.isLeader || !<-c.turn {
		t.Fatal("there is no leader")
	}
	qs.leave("ns", c)
	if len(qs.byNamespace) != 0 {
		t.Error("an empty queue is left over")
	}
	qs.leave("ns", c)
}

func TestChargePanicAdmitsNobody(t *testing.T) {
	qs := queues{byNamespace: map[string]*queue{}}
	a, b := newRequest(), newRequest()
	func() {
		defer func() { _ = recover() }()
		_ = qs.charge(t.Context(), "ns", a, func(context.Context, string, []*request) {
			qs.enqueue("ns", b)
			panic("charging")
		})
	}()
	if !b.isLeader {
		t.Error("there is no leader after a panic")
	}
	err := qs.charge(t.Context(), "other", a, func(context.Context, string, []*request) {})
	if err == nil {
		t.Error("a request that was not charged was admitted")
	}
}

func newRequest() *request { return &request{err: errTimedOut, turn: make(chan bool, 1)} }
