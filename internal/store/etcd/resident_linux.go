package etcd

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// trimResident unmaps the pages of the database that reading it at start has made resident in this process: all of
// them, although few are read again. They stay in the page cache and are faulted in when needed.
//
// It must run while nothing can unmap the database, that is before a defragmentation can start.
func trimResident(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return
	}
	defer maps.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var start, end uintptr
		if !strings.HasSuffix(lines.Text(), " "+path) {
			continue
		}
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x", &start, &end); err != nil || end <= start {
			continue
		}
		// A failure only costs memory.
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, start, end-start, syscall.MADV_DONTNEED)
	}
}
