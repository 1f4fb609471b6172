package mounts

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Mount is a line of the mount table.
type Mount struct {
	At      string // the mount point
	Kind    string // the file system type
	Options string // the super options; those of cgroup v1 name its controllers
}

// Table returns what is mounted in the mount namespace of this process, in the order of mounting.
func Table() ([]Mount, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(table), nil
}

// Parse parses a table in the format of /proc/self/mountinfo, which has a variable number of optional fields between the mount point and the hyphen.
func Parse(table []byte) (mounts []Mount) {
	for line := range bytes.Lines(table) {
		before, after, ok := strings.Cut(strings.TrimSpace(string(line)), " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if !ok || len(where) < 5 || len(what) == 0 {
			continue
		}
		m := Mount{At: unescape(where[4]), Kind: what[0]}
		if len(what) > 1 {
			m.Options = what[len(what)-1] // the mount source stands before them, and may be empty
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape decodes the table's octal escapes.
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
