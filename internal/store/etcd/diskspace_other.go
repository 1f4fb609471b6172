//go:build !linux

package etcd

import "os"

// freeBytes is implemented only on Linux.
func freeBytes(string) (bytes int64, known bool) { return 0, false }

// reserveBlocks is implemented only on Linux.
func reserveBlocks(*os.File, int64) bool { return false }
