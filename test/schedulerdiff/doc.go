// Command schedulerdiff compares package scheduling with kube-scheduler's plugins on random clusters. It prints the differences and exits with
// status 1 if there are any; with -record it writes kube-scheduler's results down, for skiff's own tests. It is a module of its own, because it
// needs upstream's code.
//
// It must not import the scheduler of skiff, only the decisions in package scheduling: those are what is compared.
package main
