package cluster

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram takes the pages of the program itself out of this process's memory. Most were needed only to start; those that are not come
// back from the system's page cache at the next touch.
func unmapProgram() {
	self, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer maps.Close()
	for _, m := range cleanMappings(maps, self) {
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED) // for the better, not for the right
	}
}

type mapping struct{ from, to uintptr }

// cleanMappings finds, in the format of /proc/PID/smaps, the mappings of a file that are as they are in the file: not writable, and with no
// page that was written to before they became so, as relocated data is.
func cleanMappings(smaps io.Reader, file string) []mapping {
	var found []mapping
	clean := false // the mapping last added
	for lines := bufio.NewScanner(smaps); lines.Scan(); {
		line := lines.Text()
		var m mapping
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %4s", &m.from, &m.to, &mode); n == 3 && len(mode) == 4 {
			clean = strings.HasSuffix(line, " "+file) && (mode == "r--p" || mode == "r-xp")
			if clean {
				found = append(found, m)
			}
			continue
		}
		var kilobytes int
		for _, written := range []string{"Anonymous:", "Swap:"} {
			if n, _ := fmt.Sscanf(line, written+" %d kB", &kilobytes); n == 1 && kilobytes > 0 && clean {
				found, clean = found[:len(found)-1], false
			}
		}
	}
	return found
}
