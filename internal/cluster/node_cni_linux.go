package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cniResults is where CNI, whoever runs it, keeps what it made for each sandbox.
const cniResults = "/var/lib/cni/results"

// cniTimes says when the network of a sandbox was made, which the runtime does by itself while it makes the sandbox, between from and to: from when its
// network namespace was there until CNI wrote the result down, to a file with the sandbox's id in its name.
func cniTimes(results, sandbox string, from, to time.Time) (start, end time.Time, ok bool) {
	entries, err := os.ReadDir(results)
	if err != nil || sandbox == "" {
		return start, end, false
	}
	for _, entry := range entries {
		if !strings.Contains(entry.Name(), "-"+sandbox+"-") {
			continue
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 || info.ModTime().Before(from) || info.ModTime().After(to) {
			continue
		}
		content, err := os.ReadFile(filepath.Join(results, entry.Name()))
		if err != nil {
			continue
		}
		var made struct {
			Result struct {
				Interfaces []struct{ Sandbox string }
			}
		}
		if json.Unmarshal(content, &made) != nil {
			continue
		}
		if end.Before(info.ModTime()) { // a pod may have more networks than one
			end = info.ModTime()
		}
		for _, i := range made.Result.Interfaces {
			if at, there := namespaceTime(i.Sandbox); there && (start.IsZero() || at.Before(start)) {
				start = at
			}
		}
	}
	if start.Before(from) || start.After(end) {
		start = from
	}
	return start, end, !end.IsZero()
}

// namespaceTime is when a network namespace was made.
func namespaceTime(path string) (time.Time, bool) {
	var s syscall.Stat_t
	if path == "" || syscall.Stat(path, &s) != nil {
		return time.Time{}, false
	}
	return time.Unix(s.Ctim.Unix()), true
}
