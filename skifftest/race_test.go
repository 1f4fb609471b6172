//go:build race

package skifftest_test

// slowedBy is how much slower things are while races are looked for.
const slowedBy = 10
