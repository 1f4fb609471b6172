package mounts

import (
	"slices"
	"testing"
)

func TestParse(t *testing.T) {
	got := Parse([]byte(`25 24 0:22 / / rw,relatime - ext4 /dev/sda1 rw,errors=remount-ro
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw shared:5 master:1 - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /a\040b\134c\x rw - tmpfs  rw
28 25 0:25 / /bare rw - proc
no line of the table
29 25 0:26 - short x rw
`))
	want := []Mount{{"/", "ext4", "rw,errors=remount-ro"}, {"/sys/fs/cgroup/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct"}, {`/a b\c\x`, "tmpfs", "rw"}, {"/bare", "proc", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
