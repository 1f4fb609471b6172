package batch

import (
	"fmt"
	"strconv"
	"strings"
)

// Sets of indexes are formatted in ascending order, with runs contracted: "0,2-4,7".

type interval struct{ first, last int32 }

// countIndexes returns the size of a set of indexes below completions.
func countIndexes(text string, completions int32) (int32, error) {
	if text == "" {
		return 0, nil
	}
	var count int32
	previous := int32(-1)
	for part := range strings.SplitSeq(text, ",") {
		i, err := parseInterval(part, completions)
		if err != nil {
			return 0, err
		}
		if previous >= i.first {
			return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", previous, i.first)
		}
		count += i.last - i.first + 1
		previous = i.last
	}
	return count, nil
}

func parseInterval(text string, completions int32) (interval, error) {
	ends := strings.Split(text, "-")
	if len(ends) > 2 {
		return interval{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", text)
	}
	first, err := parseIndex(ends[0], completions)
	if err != nil || len(ends) == 1 {
		return interval{first, first}, err
	}
	last, err := parseIndex(ends[1], completions)
	if err == nil && first >= last {
		err = fmt.Errorf("non-increasing order, previous: %d, current: %d", first, last)
	}
	return interval{first, last}, err
}

func parseIndex(text string, completions int32) (int32, error) {
	i, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	}
	if i >= int(completions) {
		return 0, fmt.Errorf("too large index: %q", text)
	}
	return int32(i), nil
}

// overlap returns the first index that is in both of two sets. Malformed intervals are ignored: another rule reports them.
func overlap(a, b string, completions int32) (int32, bool) {
	as, bs := wellFormed(a, completions), wellFormed(b, completions)
	for len(as) > 0 && len(bs) > 0 {
		x, y := as[0], bs[0]
		if x.first <= y.last && y.first <= x.last {
			return max(x.first, y.first), true
		}
		if x.first <= y.first {
			as = as[1:]
		} else {
			bs = bs[1:]
		}
	}
	return 0, false
}

func wellFormed(text string, completions int32) []interval {
	if text == "" {
		return nil
	}
	var list []interval
	for part := range strings.SplitSeq(text, ",") {
		if i, err := parseInterval(part, completions); err == nil {
			list = append(list, i)
		}
	}
	return list
}
