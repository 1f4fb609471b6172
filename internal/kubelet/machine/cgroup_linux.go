package machine

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const cgroupMount = "/sys/fs/cgroup"

// rootLimit returns the memory limit of the root cgroup and its working set (usage without inactive file pages), in bytes. ok is false if there is no limit.
//
// A node made of namespaces, such as a local one, sees the /proc/meminfo of the machine below it; what the node itself may use is the limit of its root
// cgroup. The root cgroup of a real machine has no limit.
func rootLimit(mount string) (limit, used int64, ok bool) {
	for _, version := range []struct{ dir, limit, usage, inactive string }{
		{mount, "memory.max", "memory.current", "inactive_file"},
		{filepath.Join(mount, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
	} {
		limit, err := strconv.ParseInt(readLine(filepath.Join(version.dir, version.limit)), 10, 64)
		if err != nil || limit <= 0 || limit >= 1<<62 { // the file is missing, says "max", or has the number that cgroup v1 has for no limit
			continue
		}
		used, err := strconv.ParseInt(readLine(filepath.Join(version.dir, version.usage)), 10, 64)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(version.dir, "memory.stat"))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(stat)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && name == version.inactive {
				used -= min(used, n)
			}
		}
		return limit, used, true
	}
	return 0, 0, false
}
