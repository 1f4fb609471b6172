package scheduling

import "time"

// prioritySort sorts pods of higher priority first, and among equals those that have waited longer.
type prioritySort struct{}

func (prioritySort) Name() string { return PrioritySort }

func (prioritySort) EventsToRegister() []EventWithHint { return nil }

func (prioritySort) Less(a *Pod, aSince time.Time, b *Pod, bSince time.Time) bool {
	if a.Priority != b.Priority {
		return a.Priority > b.Priority
	}
	return aSince.Before(bSince)
}
