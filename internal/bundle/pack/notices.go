package main

import (
	"crypto/sha256"
	"fmt"
	"go/build"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// preamble opens the notices. What it says of the LGPL is what that licence asks of who ships a program that was linked with it.
const preamble = `skiff carries and is linked with the work of others, listed here with their licences.

runc and pause are linked statically with the GNU C library, and runc with libseccomp, both under the GNU Lesser General Public License
version 2.1, whose text is below. "make bundle" builds them from source, with whichever version of those libraries is installed; their own
source is that of the Debian packages libseccomp-dev and libc6-dev. Two programs are changed, each in one place: the CNI plugins masquerade
through netlink instead of running nft or iptables (pkg/ip), and containerd does not let a mirror's 404 hide why an image's own registry did
not give it (core/remotes/docker). internal/bundle/build in skiff's source has both changes.
`

// notices writes the licence texts of modules and of further files, each text once with all that it is for.
func notices(w io.Writer, modules string, files []string) error {
	data, err := os.ReadFile(modules)
	if err != nil {
		return err
	}
	n := &collection{users: map[[32]byte][]string{}, texts: map[[32]byte]string{}}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) != 3 { // the module that is built
			continue
		}
		found, err := n.module(fields[0]+" "+fields[1], fields[2])
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%s has no licence file", fields[0])
		}
	}
	if err := n.file("Go and its standard library", filepath.Join(build.Default.GOROOT, "LICENSE")); err != nil {
		return err
	}
	for _, f := range files {
		if err := n.file(strings.TrimSuffix(filepath.Base(f), ".copyright"), f); err != nil {
			return err
		}
	}
	return n.write(w)
}

type collection struct {
	users map[[32]byte][]string
	texts map[[32]byte]string
	order [][32]byte
}

func (c *collection) module(name, dir string) (found bool, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		upper := strings.ToUpper(e.Name())
		is := slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE", "PATENTS"}, func(p string) bool { return strings.HasPrefix(upper, p) })
		if !is || e.IsDir() || strings.HasSuffix(upper, ".GO") {
			continue
		}
		found = found || !strings.HasPrefix(upper, "PATENTS")
		if err := c.file(name, filepath.Join(dir, e.Name())); err != nil {
			return false, err
		}
	}
	return found, nil
}

func (c *collection) file(name, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	if _, seen := c.texts[sum]; !seen {
		c.texts[sum] = string(data)
		c.order = append(c.order, sum)
	}
	c.users[sum] = append(c.users[sum], name)
	return nil
}

func (c *collection) write(w io.Writer) error {
	if _, err := io.WriteString(w, preamble); err != nil {
		return err
	}
	line := strings.Repeat("=", 80)
	for _, sum := range c.order {
		users := slices.Compact(c.users[sum])
		if _, err := fmt.Fprintf(w, "\n%s\n%s\n%s\n\n%s\n", line, strings.Join(users, "\n"), line, strings.TrimSpace(c.texts[sum])); err != nil {
			return err
		}
	}
	return nil
}
