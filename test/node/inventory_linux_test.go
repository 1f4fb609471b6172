package node

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"go.etcd.io/bbolt"
)

// inventory is all that a node has on the machine, as lines by kind. Lines name what they belong to: a pod's uid, or the id of a container or
// sandbox.
type inventory map[string][]string

func (i inventory) add(kind, format string, args ...any) {
	i[kind] = append(i[kind], fmt.Sprintf(format, args...))
}

// inventory lists everything but what containerd removes in the background (see layers).
func (c *cluster) inventory(t testing.TB) inventory {
	t.Helper()
	i := inventory{}
	for _, look := range []func(inventory) error{c.lookProcesses, lookMounts, lookNetwork, lookRules, c.lookFiles, c.lookMetadata} {
		if err := look(i); err != nil {
			t.Fatal(err)
		}
	}
	for _, lines := range i {
		slices.Sort(lines)
	}
	return i
}

// runDir returns the runtime's directory of state that need not survive a reboot.
func (c *cluster) runDir() string { return "/run" + cgroupOf(c.dir) }

// proc is a process.
type proc struct {
	pid     int
	program string
	args    []string
	pod     string // the uid, if it is in the cgroup of one
	task    string // the container or sandbox, likewise
}

var (
	podUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`)
	longID = regexp.MustCompile(`[0-9a-f]{64}`)
	// otherID is what looks like one: of layers, of network namespaces, of shims' sockets.
	otherID = regexp.MustCompile(`sha256:[0-9a-f]{64}|/netns/cni-[0-9a-f-]+|/s/[0-9a-f]{64}`)
	// group is the cgroup of a pod in a process's list of them.
	group = regexp.MustCompile(`/pod(` + podUID.String() + `)/(` + longID.String() + `)`)
)

// processes returns the processes of the cluster: all on this machine but those of the test.
func (c *cluster) processes() (out []proc, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	own, _ := os.Readlink("/proc/self/exe")
	for _, e := range entries {
		var p proc
		if _, err := fmt.Sscan(e.Name(), &p.pid); err != nil {
			continue
		}
		dir := filepath.Join("/proc", e.Name())
		if p.program, err = os.Readlink(filepath.Join(dir, "exe")); err != nil || p.program == own {
			continue // it is dead, or ours
		}
		command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		p.args = strings.Split(strings.TrimSuffix(string(command), "\x00"), "\x00")
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		if m := group.FindSubmatch(groups); m != nil {
			p.pod, p.task = string(m[1]), string(m[2])
		}
		out = append(out, p)
	}
	return out, nil
}

func (c *cluster) lookProcesses(i inventory) error {
	all, err := c.processes()
	if err != nil {
		return err
	}
	spaces := map[string]bool{}
	for _, p := range all {
		if p.pod != "" {
			i.add("processes", "%d %s of pod %s in %s", p.pid, p.args, p.pod, p.task)
		} else { // skiff and containerd have another number after each kill
			i.add("processes", "%s %s", filepath.Base(p.program), strings.Join(p.args[1:], " "))
		}
		for _, kind := range []string{"net", "ipc", "pid", "mnt", "uts"} {
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind)); err == nil {
				spaces[ns] = true
			}
		}
	}
	i["namespaces"] = slices.Collect(maps.Keys(spaces))
	return nil
}

func lookMounts(i inventory) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		i.add("mounts", "%s", strings.Fields(line)[4])
	}
	return err
}

func lookNetwork(i inventory) error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		i.add("interfaces", "%s", l.Attrs().Name)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	for _, r := range routes {
		i.add("routes", "%v by %s", r.Dst, names[r.LinkIndex])
	}
	return err
}

// lookRules lists nftables: tables, chains, rules, sets and what is in them.
func lookRules(i inventory) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	tables, err := c.ListTables()
	if err != nil {
		return err
	}
	chains, err := c.ListChains()
	if err != nil {
		return err
	}
	for _, chain := range chains {
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return err
		}
		i.add("rules", "table %s chain %s: %d rules", chain.Table.Name, chain.Name, len(rules))
	}
	for _, table := range tables {
		sets, err := c.GetSets(table)
		if err != nil {
			return err
		}
		for _, set := range sets {
			elements, err := c.GetSetElements(set)
			if err != nil {
				return err
			}
			for _, e := range elements {
				i.add("rules", "table %s set %s: %x leads to %x", table.Name, set.Name, e.Key, e.Val)
			}
		}
	}
	return nil
}

// lookFiles lists cgroups, addresses that are in use, sockets and state of containers, and the directories of pods and containers.
func (c *cluster) lookFiles(i inventory) error {
	walk := func(kind, root string, want func(path string, e os.DirEntry) bool) {
		filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
			if err == nil && want(path, e) {
				line, _ := strings.CutPrefix(path, c.dir+"/")
				i.add(kind, "%s", line)
			}
			if err == nil && e.IsDir() && e.Name() == "rootfs" { // a container's own
				return fs.SkipDir
			}
			return nil
		})
	}
	walk("cgroups", "/sys/fs/cgroup", func(path string, e os.DirEntry) bool { return e.IsDir() && strings.Contains(path, cgroupOf(c.dir)) })
	walk("state", c.runDir(), func(string, os.DirEntry) bool { return true })
	addresses, err := filepath.Glob(filepath.Join(c.dir, "cni", "addresses", "*", "*"))
	for _, path := range addresses {
		if name := filepath.Base(path); strings.HasPrefix(name, "last_reserved_ip") || name == "lock" {
			continue
		}
		of, _ := os.ReadFile(path) // the sandbox, and its interface
		i.add("addresses", "%s of %s", filepath.Base(path), strings.Fields(string(of)))
	}
	for kind, dirs := range map[string][]string{
		"CNI results":               {"/var/lib/cni/results", "/var/lib/cni/networks"},
		"directories":               {c.dir + "/kubelet/pods", c.dir + "/log/pods", c.dir + "/log/containers", c.dir + "/containerd/io.containerd.grpc.v1.cri/sandboxes", c.dir + "/containerd/io.containerd.grpc.v1.cri/containers"},
		"directories of containerd": {c.dir + "/containerd/tmpmounts", c.dir + "/containerd/io.containerd.content.v1.content/ingest"},
	} {
		for _, dir := range dirs {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				i.add(kind, "%s/%s", strings.TrimPrefix(dir, c.dir+"/"), e.Name())
			}
		}
	}
	return err
}

// lookMetadata lists what containerd has in its database: containers, sandboxes, snapshots, leases, images, content.
func (c *cluster) lookMetadata(i inventory) (err error) {
	for range 50 { // it may be written to while it is copied
		if err = c.readMetadata(i); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (c *cluster) readMetadata(i inventory) (err error) {
	data, err := os.ReadFile(filepath.Join(c.dir, "containerd", "io.containerd.metadata.v1.bolt", "meta.db"))
	if err != nil {
		return err
	}
	copied := filepath.Join(c.home, "meta.db")
	if err := os.WriteFile(copied, data, 0o600); err != nil {
		return err
	}
	defer os.Remove(copied)
	db, err := bbolt.Open(copied, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return err
	}
	found := map[string][]string{}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("reading containerd's database: %v", r)
		}
		if err == nil {
			maps.Copy(i, found)
		}
		_ = db.Close() // it is a copy
	}()
	return db.View(func(tx *bbolt.Tx) error {
		version := tx.Bucket([]byte("v1"))
		if version == nil || version.Bucket([]byte("k8s.io")) == nil {
			return nil
		}
		space := version.Bucket([]byte("k8s.io"))
		for kind, path := range map[string][]string{"containers": {"containers"}, "sandboxes": {"sandboxes"}, "leases": {"leases"}, "images": {"images"},
			"snapshots": {"snapshots", "overlayfs"}, "content": {"content", "blob"}, "ingests": {"content", "ingests"}} {
			b := space
			for _, name := range path {
				if b != nil {
					b = b.Bucket([]byte(name))
				}
			}
			if b == nil {
				continue
			}
			if err := b.ForEach(func(key, _ []byte) error { found[kind] = append(found[kind], string(key)); return nil }); err != nil {
				return err
			}
		}
		return nil
	})
}

// layers returns the directories of snapshots, which containerd removes in the background and when it starts.
func (c *cluster) layers(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(c.dir, "containerd", "io.containerd.snapshotter.v1.overlayfs", "snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// more returns the lines that one inventory has and another has not.
func (i inventory) more(than inventory) (out []string) {
	for _, kind := range slices.Sorted(maps.Keys(i)) {
		left := slices.Clone(than[kind])
		for _, line := range i[kind] {
			if at := slices.Index(left, line); at >= 0 {
				left = slices.Delete(left, at, at+1)
				continue
			}
			out = append(out, kind+": "+line)
		}
	}
	return out
}

// counts returns how many there are of each kind.
func (i inventory) counts() string {
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(i)) {
		out = append(out, fmt.Sprintf("%s %d", kind, len(i[kind])))
	}
	return strings.Join(out, ", ")
}

// orphans returns the lines that name a pod, container or sandbox that does not exist.
func (i inventory) orphans(known map[string]bool) (out []string) {
	for _, kind := range slices.Sorted(maps.Keys(i)) {
		if kind == "images" || kind == "content" {
			continue
		}
		for _, line := range i[kind] {
			names := otherID.ReplaceAllString(line, "")
			if kind == "cgroups" { // one that is empty goes with its pod
				names = longID.ReplaceAllString(names, "")
			}
			for _, id := range slices.Concat(longID.FindAllString(names, -1), podUID.FindAllString(names, -1)) {
				if !known[id] {
					out = append(out, kind+": "+line)
					break
				}
			}
		}
	}
	return out
}
