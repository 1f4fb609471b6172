package scheduling

import "time"

// prioritySort lets pods of higher priority go first, and among equals those that wait longer.
type prioritySort struct{}

func (prioritySort) Name() string { return PrioritySort }

func (prioritySort) Interests() []Interest { return nil }

func (prioritySort) Less(a *Pod, aSince time.Time, b *Pod, bSince time.Time) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return aSince.Before(bSince)
}
