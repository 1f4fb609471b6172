package server

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"
)

// TestLimiter takes by several keys at known times.
func TestLimiter(t *testing.T) {
	now := time.Unix(1000, 0)
	l := newLimiter(rate{perSecond: 2, burst: 3}, rate{perSecond: 100, burst: 7})
	count := func(key string, tries int) (n int) {
		for range tries {
			if l.take(key, now) {
				n++
			}
		}
		return n
	}
	if a, b := count("a", 10), count("b", 10); a != 3 || b != 3 {
		t.Errorf("%d and %d at once, want 3 each", a, b)
	}
	if c := count("c", 10); c != 1 {
		t.Errorf("%d over all, want what is left of 7", c)
	}
	now = now.Add(time.Second)
	if a := count("a", 10); a != 2 {
		t.Errorf("%d after a second, want 2", a)
	}
	l.giveBack("a")
	if a := count("a", 10); a != 1 {
		t.Errorf("%d after one was given back", a)
	}
	now = now.Add(time.Hour)
	if a := count("a", 10); a != 3 {
		t.Errorf("%d after an hour, want 3", a)
	}
	for i := range 3 * maxKeys {
		l.take(fmt.Sprint(i), now)
	}
	if n := l.buckets.Len(); n > maxKeys {
		t.Errorf("%d keys are remembered", n)
	}
}

// TestSourceOf counts all that one machine can call its own as one.
func TestSourceOf(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:1234": "192.0.2.1", "[::ffff:192.0.2.1]:1234": "192.0.2.1", "[2001:db8:1:2:3:4:5:6]:1": "2001:db8:1:2::/64",
		"[2001:db8:1:2::1]:2": "2001:db8:1:2::/64", "[fe80::1%eth0]:1": "fe80::/64", "pipe": "pipe",
	} {
		if got := sourceOf(&http.Request{RemoteAddr: address}); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// TestBadAnswersLeaveGoodOnes asks for so much that has a bad answer that it would fill the memory for all answers.
func TestBadAnswersLeaveGoodOnes(t *testing.T) {
	const most = 10
	asked := 0
	a := newReviewCache[string](most, newLimiter(rate{perSecond: 1, burst: 100 * most}, rate{perSecond: 1, burst: 100 * most}), func(ok bool) bool { return ok })
	get := func(key string) (bool, error) {
		return a.get(context.Background(), key, "source", func(context.Context) (bool, time.Duration, error) {
			asked++
			return key == "good", time.Hour, nil
		})
	}
	if ok, err := get("good"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	for i := range 5 * most {
		if ok, err := get(fmt.Sprint(i)); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	asked = 0
	if ok, err := get("good"); !ok || err != nil || asked != 0 {
		t.Errorf("%t %v, asked %d times", ok, err, asked)
	}
	if n := a.negative.Len(); n > most {
		t.Errorf("%d bad answers are remembered", n)
	}
}
