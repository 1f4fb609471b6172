package job

import (
	"slices"
	"strconv"
	"strings"
)

// span is a range of indexes, both ends included.
type span struct{ first, last int }

// indexes is a set of completion indexes. Spans are sorted and do not touch.
type indexes []span

// parseIndexes parses indexes as the API writes them, such as "1,3-5,7". Indexes that are not below limit or not numbers are left out.
func parseIndexes(text string, limit int) indexes {
	var out indexes
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err == nil && first >= limit {
			break
		}
		if err != nil || err2 != nil {
			continue
		}
		out = out.add(span{first, min(last, limit-1)})
	}
	return out
}

// String returns indexes as the API writes them.
func (x indexes) String() string {
	var b strings.Builder
	for i, s := range x {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(s.first))
		switch {
		case s.last == s.first+1:
			b.WriteString("," + strconv.Itoa(s.last))
		case s.last > s.first:
			b.WriteString("-" + strconv.Itoa(s.last))
		}
	}
	return b.String()
}

// add adds a span that begins no earlier than the last one.
func (x indexes) add(s span) indexes {
	if n := len(x); n > 0 && s.first <= x[n-1].last+1 {
		x[n-1].last = max(x[n-1].last, s.last)
		return x
	}
	return append(x, s)
}

// union returns the indexes of both sets.
func (x indexes) union(y indexes) indexes {
	all := append(slices.Clone(x), y...)
	slices.SortFunc(all, func(a, b span) int { return a.first - b.first })
	var out indexes
	for _, s := range all {
		out = out.add(s)
	}
	return out
}

// indexSet returns a set of single indexes.
func indexSet(list []int) indexes {
	list = slices.Clone(list)
	slices.Sort(list)
	var out indexes
	for _, i := range list {
		out = out.add(span{i, i})
	}
	return out
}

func (x indexes) total() (n int) {
	for _, s := range x {
		n += s.last - s.first + 1
	}
	return n
}

func (x indexes) has(i int) bool {
	at, found := slices.BinarySearchFunc(x, i, func(s span, i int) int { return s.first - i })
	return found || at > 0 && x[at-1].last >= i
}

// common returns how many indexes are in both sets.
func (x indexes) common(y indexes) (n int) {
	for len(x) > 0 && len(y) > 0 {
		n += max(min(x[0].last, y[0].last)-max(x[0].first, y[0].first)+1, 0)
		if x[0].last < y[0].last {
			x = x[1:]
		} else {
			y = y[1:]
		}
	}
	return n
}

// missing returns the first n indexes below limit that are not in the set.
func (x indexes) missing(n, limit int) []int {
	var out []int
	next := 0
	for _, s := range append(slices.Clone(x), span{limit, limit}) {
		for ; next < min(s.first, limit) && len(out) < n; next++ {
			out = append(out, next)
		}
		next = max(next, s.last+1)
	}
	return out
}
