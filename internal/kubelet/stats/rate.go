package stats

import (
	"time"

	"skiff/internal/kubelet/cgroup"
)

// rate has the samples of one group that the next one is compared with.
type rate struct{ older, newer sample }

// sample is how much CPU time a group had used at a time.
type sample struct {
	at  time.Time
	cpu time.Duration
}

// nanoCores returns how fast a group uses CPU time, since a sample that is old enough if there is one. Of a group that was not seen before, it is
// known that it had used nothing when it was started; if not even that is known, there is no rate.
func (p *Provider) nanoCores(key string, started time.Time, u cgroup.Usage) *uint64 {
	now := sample{u.Time, u.CPU}
	r := p.rates[key]
	if r == nil || now.cpu < r.newer.cpu {
		p.rates[key] = &rate{newer: now}
		return speed(sample{at: started}, now)
	}
	base := r.newer
	switch gap := now.at.Sub(r.newer.at); {
	case gap >= minWindow:
		r.older, r.newer = r.newer, now
	case !r.older.at.IsZero():
		base = r.older
	}
	return speed(base, now)
}

func speed(from, to sample) *uint64 {
	took := to.at.Sub(from.at)
	if from.at.Unix() <= 0 || took <= 0 || to.cpu < from.cpu {
		return nil
	}
	n := uint64(float64(to.cpu-from.cpu) / took.Seconds())
	return &n
}
