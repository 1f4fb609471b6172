// Package storetest holds the tests that every engine of package store passes.
//
// Run checks the contract line by line; Compare plays the same random calls on two engines and wants the same
// answers. Both are given a function that opens an empty store; they close it themselves.
package storetest
