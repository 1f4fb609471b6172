package local

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestListeners compares every socket that a running cluster listens on with the tables of docs/security.md: none may be missing there, and none may be
// there that is not.
func TestListeners(t *testing.T) {
	c := newCluster(t, "doors")
	c.up(t, "--nodes", "2")
	c.load(t, "testserver")
	c.everywhere(t)
	c.running(t, 2)
	network, unix := listeners(t)
	documented := securityTables(t)
	compare(t, "network sockets", network, documented["Network sockets"])
	compare(t, "unix sockets", unix, documented["Unix sockets"])
}

func compare(t *testing.T, what string, found, documented []string) {
	t.Helper()
	for _, f := range found {
		if !slices.Contains(documented, f) {
			t.Errorf("%s: a cluster listens on %q, which docs/security.md does not have", what, f)
		}
	}
	for _, d := range documented {
		if !slices.Contains(found, d) {
			t.Errorf("%s: docs/security.md has %q, on which no cluster listens", what, d)
		}
	}
}

// securityTables returns the first three cells of each row of the tables in docs/security.md, by the heading above the table.
func securityTables(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows, heading, inBody := map[string][]string{}, "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch cells := strings.Split(line, "|"); {
		case strings.HasPrefix(line, "#"):
			heading, inBody = strings.TrimSpace(strings.TrimLeft(line, "#")), false
		case strings.HasPrefix(line, "|---"):
			inBody = true
		case inBody && len(cells) > 4:
			rows[heading] = append(rows[heading], strings.TrimSpace(cells[1])+" | "+strings.TrimSpace(cells[2])+" | "+strings.TrimSpace(cells[3]))
		}
	}
	return rows
}

// listeners returns the sockets that skiff and containerd listen on in all network namespaces, as docs/security.md writes them, and fails for a unix socket
// that somebody other than root can connect to.
func listeners(t *testing.T) (network, unix []string) {
	t.Helper()
	owners := socketOwners(t)
	seen := map[string]bool{}                     // network namespaces
	for _, pid := range append(pids(t), "self") { // the machine's own namespace has a socket of the first node's server
		namespace, err := os.Readlink(filepath.Join("/proc", pid, "ns", "net"))
		if err != nil || seen[namespace] || owners.roles[pid] == "" && pid != "self" {
			continue
		}
		seen[namespace] = true
		for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6"} {
			for _, s := range internetSockets(t, pid, protocol) {
				owner, owned := owners.byInode[s.inode]
				switch {
				case !owned:
					owner.role = "kernel"
				case owner.role == "":
					continue // of a pod
				}
				network = append(network, fmt.Sprintf("%s | %s | %s", owner.role, strings.TrimSuffix(protocol, "6"), s.place(owner.role)))
			}
		}
		for _, s := range unixSockets(t, pid) {
			owner := owners.byInode[s.inode]
			if owner.role == "" {
				continue
			}
			unix = append(unix, fmt.Sprintf("%s | unix | %s", owner.role, generalPath(s.path)))
			onlyRoot(t, filepath.Join("/proc", owner.pid, "root"), s.path)
		}
	}
	for _, list := range []*[]string{&network, &unix} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return network, unix
}

// onlyRoot fails if the socket can be connected to by somebody other than root: its own mode, or that of a directory above it, must forbid it.
func onlyRoot(t *testing.T, root, path string) {
	t.Helper()
	for p := path; p != "/" && p != "."; p = filepath.Dir(p) {
		info, err := os.Lstat(filepath.Join(root, p))
		if err != nil {
			return // removed meanwhile, or an abstract name
		}
		others := os.FileMode(0o001) // to pass through a directory
		if p == path {
			others = 0o002
		}
		if info.Sys().(*syscall.Stat_t).Gid != 0 {
			others |= others << 3
		}
		if info.Mode().Perm()&others == 0 {
			return
		}
	}
	t.Errorf("everybody may connect to %s", path)
}

// generalPath replaces what differs from cluster to cluster and from container to container.
func generalPath(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		base, suffix, _ := strings.Cut(part, ".")
		if _, err := hex.DecodeString(base); err == nil && len(base) >= 8 {
			parts[i] = "<id>"
			if suffix != "" {
				parts[i] += "." + suffix
			}
		}
	}
	return strings.Join(parts, "/")
}

type owner struct{ pid, role string }

type owners struct {
	byInode map[uint64]owner
	roles   map[string]string // by pid: "skiff server", "skiff agent", "containerd", "containerd-shim"
}

func pids(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, e.Name())
		}
	}
	return list
}

// socketOwners finds which of skiff's processes has which socket.
func socketOwners(t *testing.T) owners {
	t.Helper()
	o := owners{byInode: map[uint64]owner{}, roles: map[string]string{}}
	for _, pid := range pids(t) {
		command, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err != nil || len(command) == 0 {
			continue
		}
		args := strings.Split(string(command), "\x00")
		role := "" // of none of skiff's
		switch name := filepath.Base(args[0]); {
		case name == "skiff" && len(args) > 1:
			role = "skiff " + args[1]
		case strings.HasPrefix(name, "containerd-shim"):
			role = "containerd-shim"
		case name == "containerd":
			role = "containerd"
		}
		o.roles[pid] = role
		fds, _ := filepath.Glob(filepath.Join("/proc", pid, "fd", "*"))
		for _, fd := range fds {
			target, _ := os.Readlink(fd)
			var inode uint64
			if n, _ := fmt.Sscanf(target, "socket:[%d]", &inode); n == 1 {
				o.byInode[inode] = owner{pid, role}
			}
		}
	}
	return o
}

type socket struct {
	address netip.AddrPort
	path    string
	inode   uint64
}

// place is the address and port as docs/security.md writes them: a node's own address is "node", and a port that the kernel chose is "any".
func (s socket) place(role string) string {
	host, port := s.address.Addr().Unmap().String(), strconv.Itoa(int(s.address.Port()))
	switch {
	case s.address.Addr().IsUnspecified():
		host = "*"
	case !s.address.Addr().IsLoopback():
		host = "node"
	}
	const firstEphemeral = 32768
	if s.address.Port() >= firstEphemeral && role == "containerd" {
		port = "any"
	}
	return host + ":" + port
}

// internetSockets returns the sockets in a process's network namespace that wait for connections or packets.
func internetSockets(t *testing.T, pid, protocol string) []socket {
	t.Helper()
	waits := "0A" // listening
	if strings.HasPrefix(protocol, "udp") {
		waits = "07" // not connected
	}
	var list []socket
	for _, fields := range table(t, filepath.Join("/proc", pid, "net", protocol)) {
		if len(fields) < 10 || fields[3] != waits {
			continue
		}
		inode, _ := strconv.ParseUint(fields[9], 10, 64)
		list = append(list, socket{address: parseAddress(t, fields[1]), inode: inode})
	}
	return list
}

// parseAddress reads an address of /proc/net/tcp: each four bytes in the machine's byte order, then the port.
func parseAddress(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, portText, _ := strings.Cut(text, ":")
	data, err := hex.DecodeString(host)
	if err != nil {
		t.Fatal(err)
	}
	for word := range slices.Chunk(data, 4) {
		slices.Reverse(word)
	}
	address, _ := netip.AddrFromSlice(data)
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(address, uint16(port))
}

// unixSockets returns the listening unix sockets that have a path.
func unixSockets(t *testing.T, pid string) []socket {
	t.Helper()
	const accepting = "00010000"
	var list []socket
	for _, fields := range table(t, filepath.Join("/proc", pid, "net", "unix")) {
		if len(fields) < 8 || fields[3] != accepting {
			continue
		}
		inode, _ := strconv.ParseUint(fields[6], 10, 64)
		list = append(list, socket{path: fields[7], inode: inode})
	}
	return list
}

// table returns the fields of all lines but the first.
func table(t *testing.T, path string) [][]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return nil // the process has ended
	}
	defer f.Close()
	var rows [][]string
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		rows = append(rows, strings.Fields(lines.Text()))
	}
	if lines.Err() != nil || len(rows) == 0 {
		t.Fatalf("%s: %v", path, lines.Err())
	}
	return rows[1:]
}
