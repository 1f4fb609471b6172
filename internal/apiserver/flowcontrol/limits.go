package flowcontrol

import "math"

// Level is a priority level, as a PriorityLevelConfiguration describes it. Its requests share seats.
type Level struct {
	Name   string
	UID    string // of the object; empty for a level that exists without one
	Exempt bool   // requests execute at once and take no seat
	// Shares is the level's weight in the division of all seats (nominalConcurrencyShares).
	Shares int
	// LendablePercent is the percentage of its nominal limit that other levels may borrow.
	LendablePercent int
	// BorrowingLimitPercent is the percentage of its nominal limit that the level may borrow; nil if there is no limit.
	BorrowingLimitPercent *int
	// Queues is the number of queues for requests that find no seat; if it is 0 they are rejected. A flow has HandSize of them, each for QueueLength requests.
	Queues, HandSize, QueueLength int
}

// limits are how many seats a priority level may have.
type limits struct {
	nominal int // what its shares amount to
	lower   int // what it does not lend
	upper   int // with what it may borrow
}

// divide divides seats among levels by their shares, with upstream's formulas. Nominal limits are rounded up, so that they can add up to more than seats.
func divide(seats int, levels []*level) []limits {
	shares := 0
	for _, l := range levels {
		shares += l.Shares
	}
	divided := make([]limits, len(levels))
	for i, l := range levels {
		if shares == 0 {
			continue
		}
		nominal := int(math.Ceil(float64(seats) * float64(l.Shares) / float64(shares)))
		borrowing := seats
		if l.BorrowingLimitPercent != nil {
			borrowing = percent(nominal, *l.BorrowingLimitPercent)
		}
		divided[i] = limits{nominal: nominal, lower: nominal - percent(nominal, l.LendablePercent), upper: nominal + borrowing}
	}
	return divided
}

func percent(of, percent int) int { return int(math.Round(float64(of) * float64(percent) / 100)) }

const (
	// maxReadSeats and maxWriteSeats are the most seats that a request can take in any level.
	maxReadSeats, maxWriteSeats = 100, 10
	// maxSeatsShare is the part of a level's nominal limit that one request can take, if the level has queues.
	maxSeatsShare = 0.15
)

// maxSeats returns the most seats that a request can take in the level.
func (l *level) maxSeats(mutating bool) int {
	most := maxReadSeats
	if mutating {
		most = maxWriteSeats
	}
	if l.Queues > 0 {
		most = min(most, max(1, min(int(math.Ceil(float64(l.nominal)*maxSeatsShare)), l.nominal/max(l.HandSize, 1))))
	}
	return most
}

// flowQueueLength is the number of requests of one flow that may wait.
func (l *level) flowQueueLength() int { return min(max(l.HandSize, 1), l.Queues) * l.QueueLength }

// queueLength is the number of requests of all flows that may wait.
func (l *level) queueLength() int { return l.Queues * l.QueueLength }
