//go:build !linux

package timerslack

import (
	"os/exec"
	"time"
)

// Start starts a command. Only Linux is asked for slack.
func Start(cmd *exec.Cmd, _ time.Duration) error { return cmd.Start() }
