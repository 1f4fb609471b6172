package cli

import (
	"math"

	"golang.org/x/sys/unix"
)

// keepDescriptors sets close-on-exec on all inherited descriptors but the standard ones: a cluster in the
// background must not hold a lock or a pipe of the process that ran "skiff up". A kernel before 5.11 cannot do that, and nothing depends on it.
func keepDescriptors() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
