package kubelet

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A machine that is made of namespaces, such as a local node, may have less memory than /proc/meminfo says, which is that of the machine below: what the
// root of its control groups is limited to. The root of a real machine's has no limit.

// rootLimit reads how much memory all that runs here may use, and how much of it is in use other than for what could be read from disk again. ok is false
// if there is no limit. groups is where control groups are mounted.
func rootLimit(groups string) (limit, used int64, ok bool) {
	for _, version := range []struct{ dir, limit, usage, inactive string }{
		{groups, "memory.max", "memory.current", "inactive_file"},
		{filepath.Join(groups, "memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
	} {
		limit, err := strconv.ParseInt(readLine(filepath.Join(version.dir, version.limit)), 10, 64)
		if err != nil || limit <= 0 || limit >= 1<<62 { // it is not there, or "max", or what version 1 says for none
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

const groupsMount = "/sys/fs/cgroup"
