// Package storetest holds the tests that every engine of package store passes.
//
// Run checks the contract line by line; Compare makes the same random calls on two engines and requires the same
// answers. Both are given a function that opens an empty store, and close the store. Only tests of engines import it.
// It must not import any package of skiff but the store.
package storetest
