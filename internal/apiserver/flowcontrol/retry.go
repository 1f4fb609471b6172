package flowcontrol

// maxRetryAfter is the longest time, in seconds, that clients are asked to wait.
const maxRetryAfter = 32

// retryAfter is how long clients whose requests a level rejects are asked to wait: it doubles while many are rejected, and falls by a second while few are, as
// upstream's does.
type retryAfter struct {
	seconds  int
	grownAt  int64                  // Unix time of the last doubling
	now      int64                  // Unix time of the last rejection
	rejected [maxRetryAfter + 1]int // by Unix time, modulo its length
}

// note counts a rejection and returns how long its client should wait.
func (r *retryAfter) note(now int64) int {
	if r.seconds == 0 {
		r.seconds = 1
	}
	if now != r.now {
		for t := max(r.now+1, now-maxRetryAfter); t <= now; t++ {
			r.rejected[t%int64(len(r.rejected))] = 0
		}
		r.now = now
		r.adjust()
	}
	r.rejected[now%int64(len(r.rejected))]++
	return r.seconds
}

// lately returns how many requests were rejected in the second of the last rejection.
func (r *retryAfter) lately() int { return r.rejected[r.now%int64(len(r.rejected))] }

// adjust changes the time by what was rejected in as many seconds before this one.
func (r *retryAfter) adjust() {
	rejected := 0
	for t := r.now - int64(r.seconds); t < r.now; t++ {
		rejected += r.rejected[max(t, 0)%int64(len(r.rejected))]
	}
	switch {
	case rejected >= 3*r.seconds:
		if r.now-r.grownAt >= int64(r.seconds) {
			r.seconds, r.grownAt = min(2*r.seconds, maxRetryAfter), r.now
		}
	case rejected < r.seconds && r.seconds > 1:
		r.seconds--
	}
}
