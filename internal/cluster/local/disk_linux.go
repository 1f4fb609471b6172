package local

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"skiff/internal/bundle"
)

// directories of a node's disk, with their modes.
var directories = map[string]fs.FileMode{
	"etc": 0o755, "home": 0o755, "mnt": 0o755, "opt": 0o755, "root": 0o700, "srv": 0o755, "tmp": 0o777 | fs.ModeSticky, "usr": 0o755, "var": 0o755,
	"var/lib": 0o755, "var/log": 0o755, "var/tmp": 0o777 | fs.ModeSticky, "dev": 0o755, "proc": 0o755, "sys": 0o755, "run": 0o755, "opt/cni": 0o755, "opt/cni/bin": 0o755,
	"var/lib/skiff": 0o700,
}

// standard maps directories in skiff's data directory to where machines usually have them: mounts in either are seen in both.
var standard = map[string]string{"kubelet": "/var/lib/kubelet", "log/pods": "/var/log/pods", "log/containers": "/var/log/containers", "cni/net.d": "/etc/cni/net.d"}

// runLinks returns the symbolic links in /run of a node.
func runLinks() map[string]string {
	return map[string]string{"/run/containerd/containerd.sock": bundle.Socket(inside)}
}

// prepareDisk makes the files and directories of a node's disk, and returns the bind mounts of others.
func (l *Layout) prepareDisk(n Node) ([]bind, error) {
	if err := os.MkdirAll(l.root(n), 0o755); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(l.root(n)) // symbolic links that pods made cannot lead outside
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for dir, mode := range directories {
		if err := root.MkdirAll(dir, mode.Perm()); err != nil {
			return nil, err
		}
		if err := root.Chmod(dir, mode); err != nil {
			return nil, err
		}
	}
	if err := root.Symlink("/run", "var/run"); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := writeConfiguration(root, l, n); err != nil {
		return nil, err
	}
	var binds []bind
	images := filepath.Join(l.dataDir, "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return nil, err
	}
	if n.Server() {
		binds = append(binds, bind{From: l.dataDir, To: inside})
	} else { // the registries of all nodes serve the same images; each containerd unpacks its own
		binds = append(binds, bind{From: images, To: filepath.Join(inside, "images")})
	}
	binds = append(binds, bind{From: l.programs(), To: "/opt/skiff", ReadOnly: true})
	for _, dir := range []string{"/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/alternatives"} { // authorities to trust, and where Debian's awk and iptables lead
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			binds = append(binds, bind{From: dir, To: dir, ReadOnly: true})
		}
	}
	for from, to := range standard {
		if err := os.MkdirAll(filepath.Join(l.data(n), from), 0o755); err != nil {
			return nil, err
		}
		binds = append(binds, bind{From: filepath.Join(inside, from), To: to, Own: true})
	}
	return binds, nil
}

// writeConfiguration writes the files of a node's /etc.
func writeConfiguration(root *os.Root, l *Layout, n Node) error {
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
	for _, o := range l.Nodes {
		hosts += fmt.Sprintf("%s\t%s\n", o.Address, o.Name)
	}
	files := map[string]string{"hostname": n.Name + "\n", "machine-id": n.MachineID + "\n", "hosts": hosts, "resolv.conf": resolvers("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")}
	for _, name := range []string{"passwd", "group", "nsswitch.conf", "protocols", "services", "os-release", "localtime", "mime.types"} {
		data, err := os.ReadFile(filepath.Join("/etc", name))
		if err == nil {
			files[name] = string(data)
		}
	}
	for name, content := range files {
		path := filepath.Join("etc", name)
		if err := root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // a link is replaced, not followed
			return err
		}
		if err := root.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// resolvers returns a resolv.conf of this machine without resolvers that only the machine itself can reach: from the first of some files that has others.
func resolvers(files ...string) string {
	text := ""
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		found := false
		var kept strings.Builder
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
				if a, err := netip.ParseAddr(f[1]); err != nil || a.IsLoopback() {
					continue
				}
				found = true
			}
			kept.WriteString(line)
		}
		if found {
			return kept.String()
		}
		text = kept.String()
	}
	return text
}
