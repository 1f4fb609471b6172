package http2

import "syscall"

// canWaitForBytes says that waitForBytes works.
const canWaitForBytes = true

// waitForBytes has nobody woken to read from a socket while it has less than so many bytes. Reading takes what there is all the same, and so does the end
// of the connection wake who reads.
func waitForBytes(fd uintptr, n int) error {
	return syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, n)
}
