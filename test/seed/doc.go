// Package seed gives random tests their seed: the one of the flag -seed, or a new one. A failed test is repeated with the seed that it printed.
//
// It must not import other packages of skiff: tests of all packages use it.
package seed
