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

// hierarchy is a mounted tree of control groups: one with version 2, one per controller with version 1, both kinds with hybrid.
type hierarchy struct {
	at      string // where it is mounted
	unified bool   // version 2
	options string // what a mount of it is given, with version 1
}

func (h hierarchy) has(controller string) bool {
	return slices.Contains(strings.Split(h.options, ","), controller)
}

// groupsRoot is where machines have their control groups.
const groupsRoot = "/sys/fs/cgroup"

// hierarchies are those mounted on this machine.
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
		return nil, fmt.Errorf("no control groups are mounted in %s", groupsRoot)
	}
	return out, nil
}

// groups are the control groups of a node: the same path in every hierarchy.
type groups struct {
	path string
	in   []hierarchy
}

func findGroups(path string) (*groups, error) {
	in, err := hierarchies()
	return &groups{path, in}, err
}

// leaf is the group of a node's own processes with version 2, where a group has processes or gives controllers to those below it, not both.
const leaf = "machine"

// create makes the groups of a node that is to start, and limits its memory, if the limit is not 0.
func (g *groups) create(memory int64) error {
	limited := memory == 0
	for _, h := range g.in {
		if err := h.make(g.path); err != nil {
			return fmt.Errorf("control group %s in %s: %w", g.path, h.at, err)
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
			return fmt.Errorf("limiting memory to %d bytes: %w", memory, err)
		}
		limited = true
	}
	if !limited {
		return errors.New("memory cannot be limited: the kernel has no control group for it")
	}
	return nil
}

// make makes a group and those above it, and hands controllers down to it. The node hands them on by itself.
func (h hierarchy) make(path string) error {
	dir := h.at
	for _, part := range strings.Split(strings.Trim(path, "/"), "/") {
		if h.unified {
			if err := handDown(dir); err != nil {
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
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // a group takes no process before it has some
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

// controllers are what limits of pods are made of, and whether there is no node without.
var controllers = map[string]bool{"cpu": true, "cpuset": true, "memory": true, "pids": true, "io": false, "hugetlb": false}

// handDown gives controllers of a group to those below it.
func handDown(dir string) error {
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
			return fmt.Errorf("giving controller %s to those below: %w", c, err)
		}
	}
	return nil
}

// enter moves a thread into the groups with version 1; who it starts is there too. With version 2 only processes have groups: the one to start a process
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
			return nil, fmt.Errorf("entering control group %s: %w", dir, err)
		}
	}
	return unified, nil
}

// all are the directories of the groups and of those below them, in every hierarchy, deepest first.
func (g *groups) all() (dirs []string) {
	for _, h := range g.in {
		_ = filepath.WalkDir(filepath.Join(h.at, g.path), func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // they come and go
		})
	}
	slices.SortFunc(dirs, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return dirs
}

// own are the processes of the node itself: those of pods are in groups below.
func (g *groups) own() []int {
	for _, h := range g.in {
		if !h.unified {
			return processesIn(filepath.Join(h.at, g.path))
		}
	}
	dir := filepath.Join(g.in[0].at, g.path)
	return processesIn(dir, filepath.Join(dir, leaf))
}

// processes are all of the node.
func (g *groups) processes() []int { return processesIn(g.all()...) }

func processesIn(dirs ...string) []int {
	pids, _ := bundle.ProcessesIn(dirs...) // what cannot be looked at has none
	return pids
}

// remove ends what is left in the groups and removes them, bottom-up.
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
				failed = errors.Join(failed, fmt.Errorf("removing control group %s: %w", dir, err))
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

// removeAbove removes the groups above, those that are empty.
func (g *groups) removeAbove() {
	for path := filepath.Dir(g.path); path != "/"; path = filepath.Dir(path) {
		for _, h := range g.in {
			_ = unix.Rmdir(filepath.Join(h.at, path)) // it is not there, or somebody else's is below it
		}
	}
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
