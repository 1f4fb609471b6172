package resourcequota

import (
	"context"
	"testing"
)

// A request that leaves just when it is its turn to serve lets the next one do so.
func TestTheOneToServeLeaves(t *testing.T) {
	l := lines{of: map[string]*line{}}
	a, b, c := newRequest(), newRequest(), newRequest()
	if !l.enter("ns", a) || l.enter("ns", b) || l.enter("ns", c) {
		t.Fatal("the first in line serves, and no other")
	}
	l.of["ns"].waiting = l.of["ns"].waiting[1:] // a serves itself alone
	l.finish("ns", a, []*request{a})
	if !b.leads || c.leads {
		t.Fatal("the next is to serve")
	}
	l.leave("ns", b)
	if !c.leads || !<-c.turn {
		t.Fatal("nobody serves")
	}
	l.leave("ns", c)
	if len(l.of) != 0 {
		t.Error("an empty line is left over")
	}
	l.leave("ns", c)
}

func TestServingThatPanicsAdmitsNobody(t *testing.T) {
	l := lines{of: map[string]*line{}}
	a, b := newRequest(), newRequest()
	func() {
		defer func() { _ = recover() }()
		_ = l.join(t.Context(), "ns", a, func(context.Context, string, []*request) {
			l.enter("ns", b)
			panic("serving")
		})
	}()
	if !b.leads {
		t.Error("the line stands still")
	}
	err := l.join(t.Context(), "other", a, func(context.Context, string, []*request) {})
	if err == nil {
		t.Error("who is not served is admitted")
	}
}

func newRequest() *request { return &request{err: errUnserved, turn: make(chan bool, 1)} }
