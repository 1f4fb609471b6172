package cluster

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// cniResults is the directory in which libcni caches the result of each sandbox.
const cniResults = "/var/lib/cni/results"

// cniTimes returns when CNI set up the network of a sandbox, which the runtime has it do between from and to: from the creation of the network namespace until
// libcni wrote the result, to a file with the sandbox's ID in its name.
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
		var cached struct {
			Result struct {
				Interfaces []struct{ Sandbox string }
			}
		}
		if json.Unmarshal(content, &cached) != nil {
			continue
		}
		if end.Before(info.ModTime()) { // a pod may have more networks than one
			end = info.ModTime()
		}
		for _, i := range cached.Result.Interfaces {
			if at, ok := namespaceTime(i.Sandbox); ok && (start.IsZero() || at.Before(start)) {
				start = at
			}
		}
	}
	if start.Before(from) || start.After(end) {
		start = from
	}
	return start, end, !end.IsZero()
}

// namespaceTime returns when a network namespace was created.
func namespaceTime(path string) (time.Time, bool) {
	var s syscall.Stat_t
	if path == "" || syscall.Stat(path, &s) != nil {
		return time.Time{}, false
	}
	return time.Unix(s.Ctim.Unix()), true
}
