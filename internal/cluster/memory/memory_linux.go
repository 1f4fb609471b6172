package memory

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapProgram drops the clean pages of the program itself from this process's resident memory. Most were needed only to start; the others come back from
// the kernel's page cache when they are touched again.
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
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED) // a failure costs memory and nothing else
	}
}

type mapping struct{ from, to uintptr }

// cleanMappings returns the mappings of a file, from the format of /proc/PID/smaps, whose pages are all as in the file: those that are not writable, and have
// no page that was written to before they became read-only, as relocated data has.
func cleanMappings(smaps io.Reader, file string) []mapping {
	var found []mapping
	clean := false // whether the current mapping is the last of found
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
