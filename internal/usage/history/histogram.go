package history

import (
	"cmp"
	"math"
	"slices"
)

// Resource is what a container uses.
type Resource int

const (
	CPU    Resource = iota // in billionths of a core
	Memory                 // in bytes
	resources
)

// growth is how much wider each bucket is than the one before.
const growth = 1.1

// smallest is the upper bound of the first bucket.
var smallest = [resources]float64{CPU: 1_000_000, Memory: 64 << 10}

// bucketOf returns the bucket of a number.
func bucketOf(r Resource, n uint64) uint8 {
	if float64(n) <= smallest[r] {
		return 0
	}
	b := math.Ceil(math.Log(float64(n)/smallest[r]) / math.Log(growth))
	if float64(n) > bound(r, int(b)) { // the logarithm was rounded down
		b++
	}
	return uint8(min(b, math.MaxUint8))
}

// bound returns the upper bound of a bucket.
func bound(r Resource, bucket int) float64 {
	return math.Floor(smallest[r] * math.Pow(growth, float64(bucket)))
}

// count is how many numbers are in a bucket.
type count struct {
	Bucket uint8
	Count  uint32
}

// histogram has the buckets that are not empty, in order.
type histogram []count

// add counts a number, and reports whether a bucket was added.
func (h *histogram) add(bucket uint8, n uint32) bool {
	i, found := slices.BinarySearchFunc(*h, bucket, func(c count, b uint8) int { return cmp.Compare(c.Bucket, b) })
	if !found {
		*h = slices.Insert(*h, i, count{bucket, n})
		return true
	}
	c := &(*h)[i].Count
	*c += min(n, math.MaxUint32-*c)
	return false
}

// percentile returns the upper bound of the bucket in which a percentile is, from 1 to 100, and how many numbers there are; 0 and 0 without any.
func (h histogram) percentile(r Resource, percent int) (value, numbers uint64) {
	for _, c := range h {
		numbers += uint64(c.Count)
	}
	rank := (numbers*uint64(percent) + 99) / 100
	for _, c := range h {
		if rank <= uint64(c.Count) {
			return uint64(bound(r, int(c.Bucket))), numbers
		}
		rank -= uint64(c.Count)
	}
	return 0, numbers
}
