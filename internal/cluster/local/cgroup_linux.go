package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/bundle"
	"skiff/internal/mounts"
)

// hierarchy is a mounted tree of cgroups: one with version 2, one per controller with version 1, both kinds with hybrid.
type hierarchy struct {
	at      string // mount point
	unified bool   // version 2
	options string // mount options, with version 1
}

func (h hierarchy) has(controller string) bool {
	return slices.Contains(strings.Split(h.options, ","), controller)
}

// groupsRoot is the directory in which cgroups are mounted.
const groupsRoot = "/sys/fs/cgroup"

// hierarchies returns the hierarchies that are mounted on this machine.
func hierarchies() (out []hierarchy, err error) {
	table, err := mounts.Table()
	if err != nil {
		return nil, err
	}
	for _, m := range table {
		if m.Kind != "cgroup" && m.Kind != "cgroup2" {
			continue
		}
		h := hierarchy{at: m.At, unified: m.Kind == "cgroup2"}
		var keep []string
		for option := range strings.SplitSeq(m.Options, ",") {
			if option != "rw" && option != "ro" && !strings.HasPrefix(option, "release_agent=") {
				keep = append(keep, option)
			}
		}
		if !h.unified {
			h.options = strings.Join(keep, ",")
		}
		same := func(o hierarchy) bool { return o.at == h.at || o.unified == h.unified && o.options == h.options }
		if (h.at == groupsRoot || strings.HasPrefix(h.at, groupsRoot+"/")) && !slices.ContainsFunc(out, same) {
			out = append(out, h)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no cgroups are mounted in %s", groupsRoot)
	}
	return out, nil
}

// groups are the cgroups of a node: the same path in every hierarchy.
type groups struct {
	path string
	in   []hierarchy
}

func findGroups(path string) (*groups, error) {
	in, err := hierarchies()
	return &groups{path, in}, err
}

// leaf is the cgroup of a node's own processes with version 2, where a cgroup has either processes or children with controllers.
const leaf = "machine"

// create creates the cgroups of a node that is to start, and limits its memory, if the limit is not 0.
func (g *groups) create(memory int64) error {
	limited := memory == 0
	for _, h := range g.in {
		if err := h.make(g.path); err != nil {
			return fmt.Errorf("failed to create cgroup %s in %s: %w", g.path, h.at, err)
		}
		file := ""
		switch {
		case limited:
		case h.unified && fileExists(filepath.Join(h.at, g.path, "memory.max")):
			file = "memory.max"
		case h.has("memory"):
			file = "memory.limit_in_bytes"
		}
		if file == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(h.at, g.path, file), []byte(strconv.FormatInt(memory, 10)), 0o644); err != nil {
			return fmt.Errorf("failed to limit memory to %d bytes: %w", memory, err)
		}
		limited = true
	}
	if !limited {
		return errors.New("failed to limit memory: no memory cgroup is mounted")
	}
	return nil
}

// make creates a cgroup and its parents, and enables controllers for it. The node enables them for its children by itself.
func (h hierarchy) make(path string) error {
	dir := h.at
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if h.unified {
			if err := enableControllers(dir); err != nil {
				return err
			}
		}
		above := dir
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if !h.has("cpuset") {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // a cpuset without them takes no process
			if have, err := os.ReadFile(filepath.Join(dir, file)); err == nil && len(strings.TrimSpace(string(have))) > 0 {
				continue
			}
			all, err := os.ReadFile(filepath.Join(above, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), all, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// controllers are those that the limits of pods need, with whether a node cannot do without.
var controllers = map[string]bool{"cpu": true, "cpuset": true, "memory": true, "pids": true, "io": false, "hugetlb": false}

// enableControllers enables the controllers of a cgroup for its children.
func enableControllers(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	given, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(have)) {
		needed, used := controllers[c]
		if !used || slices.Contains(strings.Fields(string(given)), c) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0o644); err != nil && needed {
			return fmt.Errorf("failed to enable controller %s for children: %w", c, err)
		}
	}
	return nil
}

// enter moves a thread into the cgroups with version 1, which its children inherit. With version 2 only processes have cgroups: the one to start a process
// in is returned.
func (g *groups) enter(thread int) (unified *os.File, err error) {
	for _, h := range g.in {
		dir := filepath.Join(h.at, g.path)
		if h.unified {
			unified, err = os.OpenFile(filepath.Join(dir, leaf), unix.O_DIRECTORY|unix.O_PATH, 0)
		} else {
			err = os.WriteFile(filepath.Join(dir, "tasks"), []byte(strconv.Itoa(thread)), 0o644)
		}
		if err != nil {
			if unified != nil {
				unified.Close()
			}
			return nil, fmt.Errorf("failed to enter cgroup %s: %w", dir, err)
		}
	}
	return unified, nil
}

// all returns the directories of the cgroups and of their descendants, in every hierarchy, deepest first.
func (g *groups) all() (dirs []string) {
	for _, h := range g.in {
		_ = filepath.WalkDir(filepath.Join(h.at, g.path), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // it may have been removed meanwhile
		})
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return dirs
}

// own returns the processes of the node itself: those of pods are in cgroups below.
func (g *groups) own() []int {
	for _, h := range g.in {
		if !h.unified {
			return processesIn(filepath.Join(h.at, g.path))
		}
	}
	dir := filepath.Join(g.in[0].at, g.path)
	return processesIn(dir, filepath.Join(dir, leaf))
}

// processes returns all processes of the node.
func (g *groups) processes() []int { return processesIn(g.all()...) }

func processesIn(dirs ...string) []int {
	pids, _ := bundle.ProcessesIn(dirs...) // a cgroup that cannot be read has none
	return pids
}

// remove kills the processes in the cgroups and removes them, bottom-up.
func (g *groups) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		for _, pid := range g.processes() {
			if pid != os.Getpid() {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			}
		}
		var failed error
		for _, dir := range g.all() {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = errors.Join(failed, fmt.Errorf("failed to remove cgroup %s: %w", dir, err))
			}
		}
		if failed == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return failed
		case <-time.After(wait):
		}
	}
}

// removeAbove removes the parents that are empty.
func (g *groups) removeAbove() {
	for path := filepath.Dir(g.path); path != "/"; path = filepath.Dir(path) {
		for _, h := range g.in {
			_ = unix.Rmdir(filepath.Join(h.at, path)) // fails if it does not exist, or has other children
		}
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
