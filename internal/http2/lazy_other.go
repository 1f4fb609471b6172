//go:build !linux

package http2

import "errors"

// canWaitForBytes says that waitForBytes works. Others than Linux are not known to go by it when somebody waits for several sockets.
const canWaitForBytes = false

func waitForBytes(uintptr, int) error { return errors.ErrUnsupported }
