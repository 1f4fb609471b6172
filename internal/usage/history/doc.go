// Package history remembers what containers have used, by namespace and image, for the last 30 days: enough to say what percentile 90 of the CPU time or
// memory of an image was, in a namespace or in all of them. The admission plugin InitialResources asks that.
//
// Numbers are counted, not kept: for each namespace, image and day there is a histogram whose buckets are a tenth wider each. So a percentile is up to a tenth
// too high, never too low. Whatever runs, no more than a few MB are kept: the oldest days go first, then the images that were not seen for the longest time.
//
// All is written to one file every few minutes, and renamed into its place, so that a server that is killed loses a few minutes of numbers. A file that
// cannot be read is put aside, and the history begins anew: no server fails to start for it.
//
// It must not import any other room of skiff.
package history
