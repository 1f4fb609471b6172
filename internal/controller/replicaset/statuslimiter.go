package replicaset

import (
	"sync"
	"time"

	"skiff/internal/controller"
)

// statusInterval is how often a set's status is updated while many of its pods start or end: an update for each pod that becomes ready would
// double the writes to the API server. The last change is written at once.
const statusInterval = 50 * time.Millisecond

// statusLimiter remembers when the status of sets was last written. It only saves writes: a loop that starts without it writes once more.
type statusLimiter struct {
	mu   sync.Mutex
	last map[controller.Key]time.Time
}

// wait returns how long it is until a set's status may be written again.
func (l *statusLimiter) wait(key controller.Key, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(statusInterval-now.Sub(l.last[key]), 0)
}

// wrote notes that a set's status is written.
func (l *statusLimiter) wrote(key controller.Key, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil {
		l.last = map[controller.Key]time.Time{}
	}
	l.last[key] = now
}

// forget drops a deleted set.
func (l *statusLimiter) forget(key controller.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.last, key)
}
