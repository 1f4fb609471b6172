package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"skiff/internal/mounts"
)

// Hierarchy is a mounted cgroup hierarchy.
type Hierarchy struct {
	Dir         string
	Controllers []string // of v1: what is mounted there. Of v2: empty, its files say what it has.
	V2          bool
}

func (h Hierarchy) has(controller string) bool { return slices.Contains(h.Controllers, controller) }

// mounted reads the hierarchies of this machine from the table of mounts.
func mounted() ([]Hierarchy, error) {
	table, err := mounts.Table()
	if err != nil {
		return nil, fmt.Errorf("failed to find cgroup hierarchies: %w", err)
	}
	return findHierarchies(table), nil
}

// findHierarchies finds cgroups in a table of mounts. Of a hierarchy that is mounted several times the shortest path counts.
func findHierarchies(table []mounts.Mount) []Hierarchy {
	found := map[string]Hierarchy{}
	for _, m := range table {
		h := Hierarchy{Dir: m.At}
		switch m.Kind {
		case "cgroup2":
			h.V2 = true
		case "cgroup":
			for option := range strings.SplitSeq(m.Options, ",") {
				if slices.Contains(controllers, option) || strings.HasPrefix(option, "name=") {
					h.Controllers = append(h.Controllers, option)
				}
			}
			slices.Sort(h.Controllers)
		default:
			continue
		}
		key := strings.Join(h.Controllers, ",")
		if old, again := found[key]; !again || len(h.Dir) < len(old.Dir) {
			found[key] = h
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Hierarchy) int { return strings.Compare(a.Dir, b.Dir) })
}

// controllers are those that v1 may mount; a mount's other options are about something else.
var controllers = []string{"blkio", "cpu", "cpuacct", "cpuset", "devices", "freezer", "hugetlb", "memory", "misc", "net_cls", "net_prio",
	"perf_event", "pids", "rdma"}

// requiredV2 are the controllers that pods need of v2, if the kernel has them.
var requiredV2 = []string{"cpu", "cpuset", "hugetlb", "memory", "pids"}

// version returns which version's controllers count on a machine, and whether it has what a node needs.
func version(hierarchies []Hierarchy) (int, error) {
	var v1, v2 bool
	have := map[string]bool{}
	for _, h := range hierarchies {
		v2 = v2 || h.V2
		for _, c := range h.Controllers {
			have[c] = true
			v1 = v1 || slices.Contains(controllers, c)
		}
	}
	if v2 && !v1 {
		return 2, nil
	}
	var missing []string
	for _, c := range []string{"cpu", "cpuacct", "cpuset", "memory"} {
		if !have[c] {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return 0, fmt.Errorf("no cgroup controllers for %s are mounted: mount cgroup v2 on /sys/fs/cgroup, or these controllers of v1 below it",
			strings.Join(missing, ", "))
	}
	return 1, nil
}

// used returns the hierarchies that groups are made in. On a hybrid machine v2 has no controllers and is left alone.
func (m *Manager) used(h Hierarchy) bool { return h.V2 == (m.version == 2) }

// dir returns where a group is in the hierarchy of a controller.
func (m *Manager) dir(controller, path string) (string, bool) {
	for _, h := range m.hierarchies {
		if m.used(h) && (h.V2 || h.has(controller)) {
			return filepath.Join(h.Dir, path), true
		}
	}
	return "", false
}

// make creates a cgroup in every hierarchy, and reports whether it was missing in any.
func (m *Manager) make(path string) (made bool, err error) {
	for _, h := range m.hierarchies {
		if !m.used(h) {
			continue
		}
		dir := h.Dir
		for part := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
			parent := dir
			dir = filepath.Join(parent, part)
			if h.V2 {
				if err := enable(parent); err != nil {
					return made, err
				}
			}
			err := os.Mkdir(dir, 0o755)
			if err != nil && !errors.Is(err, fs.ErrExist) {
				return made, err
			}
			made = made || err == nil
			if h.has("cpuset") {
				if err := fillCPUSet(dir, parent); err != nil {
					return made, err
				}
			}
		}
	}
	return made, nil
}

// enable gives the groups in one of v2 the controllers that it has. The kernel refuses to, with "device or resource busy", for a group
// that has processes itself: those have to be moved into a group of their own first.
func enable(dir string) error {
	available, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "cgroup.subtree_control")
	enabled, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	have := strings.Fields(string(enabled))
	var missing []string
	for c := range strings.FieldsSeq(string(available)) {
		if slices.Contains(requiredV2, c) && !slices.Contains(have, c) {
			missing = append(missing, "+"+c)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return write(file, strings.Join(missing, " "))
}

// fillCPUSet gives a group of v1 the processors and memory nodes of its parent: it is made with none, and takes no process then.
func fillCPUSet(dir, parent string) error {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(own)) > 0 {
			continue
		}
		above, err := os.ReadFile(filepath.Join(parent, name))
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, name), string(bytes.TrimSpace(above))); err != nil {
			return err
		}
	}
	return nil
}

func write(file, value string) error {
	if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
		return fmt.Errorf("failed to write %q: %w", value, err)
	}
	return nil
}
