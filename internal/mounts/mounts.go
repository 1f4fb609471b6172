// Package mounts reads the kernel's table of what is mounted where.
package mounts

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// Mount is a line of the table.
type Mount struct {
	At      string // the mount point
	Kind    string // of the file system
	Options string // of the file system; those of version 1 of control groups name its controllers
}

// Table is what this process sees mounted, in the order in which it was.
func Table() ([]Mount, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return Parse(table), nil
}

// Parse reads a table in the form of /proc/self/mountinfo. Between the mount point and the hyphen there are as many fields as the kernel likes.
func Parse(table []byte) (mounts []Mount) {
	for line := range bytes.Lines(table) {
		before, after, ok := strings.Cut(strings.TrimSpace(string(line)), " - ")
		where, what := strings.Fields(before), strings.Fields(after)
		if !ok || len(where) < 5 || len(what) == 0 {
			continue
		}
		m := Mount{At: unescape(where[4]), Kind: what[0]}
		if len(what) > 1 {
			m.Options = what[len(what)-1] // what is mounted stands before, and may be empty
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape turns the table's octal escapes back into characters.
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
