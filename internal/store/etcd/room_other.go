//go:build !linux

package etcd

import "os"

// diskLeft is not known here.
func diskLeft(string) (bytes int64, known bool) { return 0, false }

// reserveBlocks reserves nothing here.
func reserveBlocks(*os.File, int64) bool { return false }
