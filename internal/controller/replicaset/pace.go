package replicaset

import (
	"sync"
	"time"

	"skiff/internal/controller"
)

// pace is how often a set's status follows its pods while many of them come up or end: each becoming ready alone would double what the server
// has to write. What is last is told at once.
const pace = 50 * time.Millisecond

// paces remembers when the status of sets was last written. It is no more than a courtesy to the server: a loop that starts anew without it
// writes once more.
type paces struct {
	mu   sync.Mutex
	last map[controller.Key]time.Time
}

// wait is how long it is until a set's status may be told again.
func (p *paces) wait(key controller.Key, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(pace-now.Sub(p.last[key]), 0)
}

func (p *paces) told(key controller.Key, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[controller.Key]time.Time{}
	}
	p.last[key] = now
}

// forget is for sets that are gone.
func (p *paces) forget(key controller.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}
