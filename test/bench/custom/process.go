package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns what the processes have used of the processors since they began.
func (p processes) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, pid := range p {
		const schedulerClock = 2 // CPUCLOCK_SCHED: nanoseconds, where /proc/PID/stat counts ticks
		var used unix.Timespec
		if err := unix.ClockGettime(int32(^pid<<3|schedulerClock), &used); err != nil {
			return 0, fmt.Errorf("read processor time of process %d: %w", pid, err)
		}
		sum += time.Duration(used.Nano())
	}
	return sum, nil
}

// anonymous returns the anonymous memory of the processes in bytes.
func (p processes) anonymous() (int, error) {
	sum := 0
	for _, pid := range p {
		name := fmt.Sprintf("/proc/%d/status", pid)
		file, err := os.Open(name)
		if err != nil {
			return 0, err
		}
		kilobytes := -1
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if value, ok := strings.CutPrefix(lines.Text(), "RssAnon:"); ok {
				kilobytes, err = strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			}
		}
		file.Close()
		if err != nil || kilobytes < 0 {
			return 0, fmt.Errorf("no RssAnon in %s", name)
		}
		sum += kilobytes << 10
	}
	return sum, nil
}

// reportMemory prints the anonymous memory of the server and returns it.
func reportMemory(name string) (int, error) {
	bytes, err := server.anonymous()
	if err == nil && len(server) > 0 {
		report(name, float64(bytes)/1e6, "MB")
	}
	return bytes, err
}
