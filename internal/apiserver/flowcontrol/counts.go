package flowcontrol

import (
	"sync/atomic"
	"time"
)

// counts are of the requests of one schema in one level. What is not atomic is guarded by Controller.mu.
type counts struct {
	exempt, exemptDispatched atomic.Int64 // executing exempt requests, and all so far
	executing, seats         int          // that are not exempt; seats also of those that have ended and keep them
	queued, queuedSeats      int
	rejected                 [4]int64     // by decision; wait for those that waited in vain
	waits                    [2]histogram // by whether the request was executed then
	queueLength              histogram
	estimated                histogram          // seats of requests
	execution                [2]sharedHistogram // of other requests and of watches
}

// The bounds of upstream's histograms.
var (
	durationBounds    = []float64{0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30}
	queueLengthBounds = []float64{0, 10, 25, 50, 100, 250, 500, 1000}
	seatBounds        = []float64{1, 2, 4, 8, 16, 32, 64, 100}
)

func newCounts() *counts {
	c := &counts{queueLength: histogram{bounds: queueLengthBounds}, estimated: histogram{bounds: seatBounds}}
	for i := range c.waits {
		c.waits[i].bounds = durationBounds
	}
	return c
}

func (c *counts) wait(executed bool, took time.Duration) {
	i := 0
	if executed {
		i = 1
	}
	c.waits[i].observe(took.Seconds())
}

func (c *counts) enqueue(seats, length int) {
	c.queued++
	c.queuedSeats += seats
	c.queueLength.observe(float64(length))
}

func (c *counts) dequeue(seats int) {
	c.queued--
	c.queuedSeats -= seats
}

// maxBounds is the number of bounds of the histogram with the most.
const maxBounds = 13

// histogram counts values by the lowest of its bounds that they do not exceed.
type histogram struct {
	bounds []float64
	counts [maxBounds + 1]uint64
	sum    float64
}

func (h *histogram) observe(v float64) {
	h.counts[bucket(h.bounds, v)]++
	h.sum += v
}

func bucket(bounds []float64, v float64) int {
	for i, bound := range bounds {
		if v <= bound {
			return i
		}
	}
	return len(bounds)
}

// buckets returns how many values there were, and how many did not exceed each bound.
func (h *histogram) buckets() (total uint64, upTo map[float64]uint64) {
	upTo = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		total += h.counts[i]
		upTo[bound] = total
	}
	return total + h.counts[len(h.bounds)], upTo
}

// sharedHistogram is a histogram of durations that needs no lock.
type sharedHistogram struct {
	counts [maxBounds + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func (h *sharedHistogram) observe(seconds float64) {
	h.counts[bucket(durationBounds, seconds)].Add(1)
	h.sum.Add(int64(seconds * float64(time.Second)))
}

// now returns the counts at this moment.
func (h *sharedHistogram) now() histogram {
	copied := histogram{bounds: durationBounds, sum: time.Duration(h.sum.Load()).Seconds()}
	for i := range h.counts {
		copied.counts[i] = h.counts[i].Load()
	}
	return copied
}
