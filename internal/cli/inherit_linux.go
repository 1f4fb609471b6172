package cli

import (
	"math"

	"golang.org/x/sys/unix"
)

// keepDescriptors has no descriptor that this process was given beside the standard ones go on to those that it starts: a cluster in the
// background must not hold a lock or a pipe of whoever typed "skiff up". A kernel before 5.11 cannot do that, and nothing depends on it.
func keepDescriptors() {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
}
