//go:build !race

package skifftest_test

const slowedBy = 1
