package flowcontrol

import (
	"runtime"
	"time"
)

const (
	// busyDelay is how long a request that was granted its seats may wait for a processor before flows are to hold fewer seats; below idleDelay they may hold more.
	busyDelay, idleDelay = time.Millisecond, 300 * time.Microsecond
	// halvingsEvery and doublingsEvery are the least times between two changes of what flows may hold.
	halvingsEvery, doublingsEvery = 5 * time.Millisecond, 50 * time.Millisecond
	maxHalvings                   = 8
)

// pressure is how busy the processors are. A flow that has hundreds of seats, and work for all of them, makes every other request wait for a processor, seats or not. So
// while granted requests do, the seats that one flow may hold are halved, again and again, but to no fewer than there is work for.
type pressure struct {
	halvings uint
	changed  time.Time
}

// note notes how long a request that was granted its seats has waited for a processor.
func (p *pressure) note(delay time.Duration, now time.Time) {
	switch since := now.Sub(p.changed); {
	case delay > busyDelay && p.halvings < maxHalvings && since >= halvingsEvery:
		p.halvings++
		p.changed = now
	case delay < idleDelay && p.halvings > 0 && since >= doublingsEvery:
		p.halvings--
		p.changed = now
	}
}

// busySeats returns how many seats a flow may hold however busy the processors are: enough to keep them busy.
func busySeats() int { return 4 * runtime.GOMAXPROCS(0) }

// holdable returns how many seats less one a flow may hold of a level with so many free ones.
func (c *core) holdable(free int) int {
	most := flowThreshold * free
	return max(min(most, c.busySeats), most>>c.pressure.halvings)
}
