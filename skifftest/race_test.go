//go:build race

package skifftest_test

// slowedBy is how much slower things are with the race detector.
const slowedBy = 10
