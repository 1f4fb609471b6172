package podautoscaler

import (
	"slices"
	"time"
)

// longestPeriod is the longest period that the API allows a policy. Changes are forgotten after it.
const longestPeriod = 30 * time.Minute

// history is what an autoscaler proposed and did lately. One evaluation at a time has it.
type history struct {
	proposals  []numberAt // before they were limited
	ups, downs []numberAt // by how many replicas the target was scaled
}

type numberAt struct {
	number int32
	at     time.Time
}

// begin takes the number of replicas that is found first for a proposal.
func (h *history) begin(replicas int32, now time.Time) {
	if h.proposals == nil {
		h.proposals = []numberAt{{replicas, now}}
	}
}

// propose notes a proposal, and drops those from before since.
func (h *history) propose(replicas int32, now, since time.Time) {
	h.proposals = append(dropBefore(h.proposals, since), numberAt{replicas, now})
}

// scaled notes that the target was scaled.
func (h *history) scaled(from, to int32, now time.Time) {
	changes, by := &h.ups, to-from
	if by < 0 {
		changes, by = &h.downs, -by
	}
	*changes = append(dropBefore(*changes, now.Add(-longestPeriod)), numberAt{by, now})
}

func dropBefore(list []numberAt, since time.Time) []numberAt {
	return slices.DeleteFunc(list, func(n numberAt) bool { return n.at.Before(since) })
}

// sumAfter returns the sum of the numbers after a time.
func sumAfter(list []numberAt, since time.Time) (sum int32) {
	for _, n := range list {
		if n.at.After(since) {
			sum += n.number
		}
	}
	return sum
}
