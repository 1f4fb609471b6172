package server

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"k8s.io/utils/lru"
)

// errTooManyReviews says that a client has caused too many reviews without a positive result.
var errTooManyReviews = errors.New("too many requests that the API would have to be asked about")

// rate is a token bucket: burst events at once, and perSecond after that.
type rate struct{ perSecond, burst float64 }

// limiter limits the rate of events by key, for example the source address, and in total.
type limiter struct {
	each, all rate

	mu      sync.Mutex
	total   bucket
	buckets *lru.Cache // *bucket by key; a key that was evicted begins anew, which is why there is a limit over all
}

// bucket is how many tokens of a burst are spent at a time.
type bucket struct {
	spent float64
	at    time.Time
}

// maxKeys bounds how many keys a limiter remembers.
const maxKeys = 4096

func newLimiter(each, all rate) *limiter {
	return &limiter{each: each, all: all, buckets: lru.New(maxKeys)}
}

// take reports whether another event of a key is allowed now, and counts it.
func (l *limiter) take(key string, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.of(key)
	b.refill(l.each, now)
	l.total.refill(l.all, now)
	if b.spent+1 > l.each.burst || l.total.spent+1 > l.all.burst {
		return false
	}
	b.spent++
	l.total.spent++
	return true
}

// giveBack undoes a take that does not count.
func (l *limiter) giveBack(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range []*bucket{l.of(key), &l.total} {
		b.spent = max(b.spent-1, 0)
	}
}

func (l *limiter) of(key string) *bucket {
	if b, ok := l.buckets.Get(key); ok {
		return b.(*bucket)
	}
	b := &bucket{}
	l.buckets.Add(key, b)
	return b
}

func (b *bucket) refill(r rate, now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.spent = max(b.spent-passed.Seconds()*r.perSecond, 0)
		b.at = now
	}
}

// sourceOf returns where a request comes from: an IPv4 address, or the /64 of an IPv6 address, which is what one machine has at least.
func sourceOf(rq *http.Request) string {
	host, _, err := net.SplitHostPort(rq.RemoteAddr)
	if err != nil {
		host = rq.RemoteAddr
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if address = address.Unmap().WithZone(""); address.Is4() {
		return address.String()
	}
	prefix, err := address.Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}
