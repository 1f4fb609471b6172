// Package memory keeps a skiff process small while it is idle and fast while it is busy: it sets GOGC by how much is allocated, returns freed memory to the
// kernel once the process becomes idle, and drops the pages of the program that only the start needed. Each process of skiff calls it once, when it starts.
//
// It must not import anything else of skiff.
package memory
