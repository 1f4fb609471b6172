package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/cluster"
)

// machine is a node whose first process runs.
type machine struct {
	layout *Layout
	node   Node
	pid    int
	groups *groups
}

// command returns the arguments of a node's first process, by which it is found.
func (l *Layout) command(n Node) []string { return []string{InitCommand, l.id(), n.Name} }

// find returns the machine of a node, or nil if it does not run. made is false while its first process is still setting it up.
func (l *Layout) find(n Node) (m *machine, made bool, err error) {
	g, err := findGroups(l.group(n))
	if err != nil {
		return nil, false, err
	}
	for _, pid := range g.own() {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		words := strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
		numbers := statusField(pid, "NSpid")
		if !slices.Equal(words[1:], l.command(n)) || len(numbers) == 0 || numbers[len(numbers)-1] != "1" {
			continue
		}
		return &machine{layout: l, node: n, pid: pid, groups: g}, words[0] == "skiff", nil
	}
	return nil, false, nil
}

// alive reports whether the node still runs.
func (m *machine) alive() bool {
	now, made, err := m.layout.find(m.node)
	return err == nil && now != nil && made && now.pid == m.pid
}

// boot starts the machine of a node that does not run.
func (l *Layout) boot(ctx context.Context, n Node) (*machine, error) {
	g, err := findGroups(l.group(n))
	if err != nil {
		return nil, err
	}
	if err := g.remove(ctx); err != nil { // left from an earlier run
		return nil, err
	}
	if err := g.create(l.Memory); err != nil {
		return nil, err
	}
	binds, err := l.prepareDisk(n)
	if err != nil {
		return nil, fmt.Errorf("failed to prepare the disk of node %s: %w", n.Name, err)
	}
	id := n.MachineID
	spec, err := json.Marshal(specification{Cluster: l.id(), Node: n.Name, Root: l.root(n), Group: g.path, Binds: binds, Links: runLinks(), BootID: newUUID(),
		SystemID: fmt.Sprintf("%s-%s-%s-%s-%s", id[:8], id[8:12], id[12:16], id[16:20], id[20:])})
	if err != nil {
		return nil, err
	}
	in, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := exec.Command("/proc/self/exe", l.command(n)...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.ExtraFiles = "/", []string{}, bytes.NewReader(spec), []*os.File{said}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	err = cmd.Start()
	said.Close()
	if err != nil {
		return nil, fmt.Errorf("failed to start node %s: %w", n.Name, err)
	}
	go cmd.Wait() // reaps it, should it end before this process does
	defer context.AfterFunc(ctx, func() { in.SetReadDeadline(time.Unix(1, 0)) })()
	answer, err := io.ReadAll(io.LimitReader(in, 64<<10))
	if err == nil && string(answer) != ready {
		err = errors.New(strings.TrimPrefix(string(answer), ready))
		if len(answer) == 0 {
			err = errors.New("its first process ended at once")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("failed to start node %s: %w", n.Name, errors.Join(err, g.remove(ctx)))
	}
	return &machine{layout: l, node: n, pid: cmd.Process.Pid, groups: g}, nil
}

// end kills a node, as a power failure does, if it runs, and removes its cgroups. Its disk stays.
func (l *Layout) end(ctx context.Context, n Node) (ran bool, err error) {
	m, _, err := l.find(n)
	if err != nil {
		return false, err
	}
	if m != nil {
		if p, err := openPIDFD(m.pid); err == nil {
			defer p.close()
			if err := p.end(ctx, unix.SIGKILL); err != nil {
				return true, err
			}
		}
	}
	g, err := findGroups(l.group(n))
	if err != nil {
		return m != nil, err
	}
	return m != nil, errors.Join(g.remove(ctx), cluster.DetachVolumes(l.data(n)))
}

// newUUID returns a random UUID.
func newUUID() string {
	b := make([]byte, 16)
	rand.Read(b)
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
