package seed

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var given = flag.Uint64("seed", 0, "seed of everything random in a test; a new one if 0")

// New returns the seed for a test and prints it as the flag that repeats the run.
func New(t testing.TB) uint64 {
	t.Helper()
	s := *given
	for s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed %d", s)
	return s
}

// Given returns the seed of the flag -seed, or 0.
func Given() uint64 { return *given }
