package job

import (
	"math/rand/v2"
	"slices"
	"testing"

	"skiff/test/seed"
)

func TestParseIndexes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""}, {"0", "0"}, {"1,3-5,7", "1,3-5,7"}, {"0,1", "0,1"}, {"0,1,2", "0-2"}, {"0-4,5-7", "0-7"}, {"3,30", "3"}, {"3-30", "3-9"}, {"a,2,4-b,6", "2,6"}, {"12", ""},
	} {
		if got := parseIndexes(c.text, 10).String(); got != c.want {
			t.Errorf("%q is %q, not %q", c.text, got, c.want)
		}
	}
}

// Sets of spans behave like sets of numbers.
func TestIndexesAreSets(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	const limit = 40
	some := func() (list []int) {
		for range random.IntN(limit) {
			list = append(list, random.IntN(limit))
		}
		return list
	}
	for range 500 {
		a, b := some(), some()
		x, y := indexSet(a), indexSet(b)
		both := x.union(y)
		common, total := 0, 0
		var missing []int
		for i := range limit {
			inA, inB := slices.Contains(a, i), slices.Contains(b, i)
			if x.has(i) != inA || both.has(i) != (inA || inB) {
				t.Fatalf("%v and %v: %d", a, b, i)
			}
			if inA && inB {
				common++
			}
			if inA || inB {
				total++
			} else if len(missing) < 5 {
				missing = append(missing, i)
			}
		}
		if x.common(y) != common || both.total() != total || !slices.Equal(both.missing(5, limit), missing) {
			t.Fatalf("%v and %v: %d common, %d in all, %v missing", a, b, x.common(y), both.total(), both.missing(5, limit))
		}
		if again := parseIndexes(both.String(), limit); !slices.Equal(again, both) {
			t.Fatalf("%v is written %q and read as %v", both, both, again)
		}
	}
}
