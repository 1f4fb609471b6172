//go:build !linux

package volume

import (
	"context"
	"errors"
	"os"
)

// Nodes run Linux. Elsewhere the package compiles, so that clients do, and refuses to work.
var errLinux = errors.New("volumes are mounted only on Linux")

func mountMemory(string, int64, *int64) error                           { return errLinux }
func mountHugePages(string, string, *int64) error                       { return errLinux }
func bindDir(string, string, bool, []string) error                      { return errLinux }
func mountDisk(context.Context, string, string, string, []string) error { return errLinux }
func makeReadOnly(string) error                                         { return errLinux }
func mountedAt(string) (bool, error)                                    { return false, errLinux }
func unmountBelow(context.Context, string) error                        { return errLinux }
func setGroup(context.Context, string, int64, bool) error               { return errLinux }
func usageOf(context.Context, string, bool) (Usage, error)              { return Usage{}, errLinux }
func groupOf(os.FileInfo) int64                                         { return -1 }
func bindSubPath(volume, subPath, target string) error                  { return errLinux }

// Unmount unmounts nothing.
func Unmount(context.Context, string) error { return errLinux }
