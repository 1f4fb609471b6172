package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/cluster"
	"skiff/internal/cluster/process"
)

// skiffProgram is the path of skiff in a node.
const skiffProgram = "/opt/skiff/bin/skiff"

// skiffs returns the pids of the skiffs that run in a node, as servers or agents.
func (m *machine) skiffs() (pids []int) {
	for _, pid := range m.groups.own() {
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
		words := strings.Split(string(data), "\x00")
		if len(words) > 1 && words[0] == skiffProgram && (words[1] == "server" || words[1] == "agent") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (m *machine) runsSkiff() bool { return len(m.skiffs()) > 0 }

// startServer starts the server of node 1, unless it runs. It inherits the listener, which stays in the network namespace of this machine.
func (m *machine) startServer(listener *net.TCPListener) (bool, error) {
	if m.runsSkiff() {
		return false, nil
	}
	if listener == nil {
		return false, errors.New("the server does not run, but nothing listens for it on this machine: try again")
	}
	// The kubeconfig of an earlier server must not be taken for this one's.
	if err := os.Remove(cluster.KubeconfigPath(m.layout.dataDir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	file, err := listener.File()
	if err != nil {
		return false, err
	}
	defer file.Close()
	l, n := m.layout, m.node
	args := append([]string{"server"}, l.Server...)
	args = append(args, "--name="+l.Name, "--data-dir="+inside, "--port="+strconv.Itoa(l.Port), "--hostname-override="+n.Name, "--node-ip="+n.Address.String())
	return true, m.startSkiff(args, []string{cluster.ListenerEnv + "=3"}, file)
}

// openLog opens the log of the skiff in a node. Symbolic links that pods made on the node's disk cannot lead outside.
func (l *Layout) openLog(n Node) (*os.File, error) {
	if n.Server() {
		return process.OpenLog(os.OpenFile, l.log(n), cluster.Version)
	}
	root, err := os.OpenRoot(l.root(n))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return process.OpenLog(root.OpenFile, strings.TrimPrefix(process.LogPath(inside), "/"), cluster.Version)
}

// startSkiff starts skiff in the node in the background.
func (m *machine) startSkiff(args, env []string, files ...*os.File) error {
	log, err := m.layout.openLog(m.node)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(skiffProgram, args...)
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles, cmd.Env = log, log, files, env
	if err := m.start(cmd); err != nil {
		return fmt.Errorf("failed to start skiff in node %s: %w", m.node.Name, err)
	}
	go cmd.Wait() // reaps it, should it end before this process does
	// A program runs a moment before its arguments can be read, by which skiffs finds it.
	for range 1000 {
		if data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); err != nil || len(data) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// stopSkiff terminates the skiffs of a node and waits for that. What they started keeps running.
func (m *machine) stopSkiff(ctx context.Context) (stopped bool, err error) {
	for _, pid := range m.skiffs() {
		p, err := openPIDFD(pid)
		if err != nil {
			continue // it has ended
		}
		if slices.Contains(m.skiffs(), pid) {
			stopped = true
			err = p.end(ctx, unix.SIGTERM)
		}
		p.close()
		if err != nil {
			return stopped, err
		}
	}
	return stopped, nil
}

// stopTime bounds how long the skiffs of all nodes may take to end.
const stopTime = time.Minute
