package cluster

import "runtime/debug"

// TuneMemory trades a little CPU for memory: the garbage collector runs when the heap has grown by half instead of by its whole size.
func TuneMemory() { debug.SetGCPercent(50) }
