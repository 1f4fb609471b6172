package housekeeping

import "testing"

func TestBytesToFree(t *testing.T) {
	const gb = 1 << 30
	for _, c := range []struct {
		name             string
		size, free, want int64
	}{
		{"much is left", 100 * gb, 50 * gb, 0},
		{"just enough is left", 40 * gb, 7 * gb, 0},
		{"too little is left", 40 * gb, 5 * gb, 3 * gb},
		{"too little of a large disk", 1000 * gb, 9 * gb, 6 * gb},
		{"enough of a large disk that others fill", 1000 * gb, 20 * gb, 0},
		{"nothing is left", 10 * gb, 0, 2 * gb},
	} {
		if got := bytesToFree(c.size, c.free); got/gb != c.want/gb && (got+gb/10)/gb != c.want/gb {
			t.Errorf("%s: %d bytes of %d are to be freed, not %d", c.name, got, c.size, c.want)
		}
	}
}
