//go:build linux

package volume

import (
	"syscall"

	"k8s.io/apimachinery/pkg/types"
)

type statT = syscall.Stat_t

func uidOf(s string) types.UID { return types.UID(s) }
