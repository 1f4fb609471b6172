package cluster

import (
	"context"
	"runtime/debug"
	"time"
)

// TuneMemory trades a little CPU for memory: the garbage collector runs when the heap has grown by half instead of by its whole size.
func TuneMemory() { debug.SetGCPercent(50) }

// settleTime is how long after its start a server is taken to be at rest.
const settleTime = 5 * time.Second

// returnMemory gives back to the system, once, what starting took: heap, and pages of the program that only starting needed.
func returnMemory(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(settleTime):
		debug.FreeOSMemory()
		unmapProgram()
	}
}
