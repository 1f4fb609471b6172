// Package program finds or builds the skiff program for tests that run it as users do, and runs it.
//
// It must not import anything of skiff: tests of every package may use it.
package program
