package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A containerd that is killed in the middle of a call leaves things that it has no record of, as it records them after it has made them: a network
// namespace or a shim of a sandbox that was never finished, leases that keep layers. So what existed before a containerd was started and belongs to
// none of its sandboxes once it has started is removed.

// leftovers are what sandboxes of an earlier containerd may have left.
type leftovers struct {
	at         time.Time
	shims      map[string]*process // by sandbox ID
	namespaces []string            // paths of network namespaces
}

// settleTime is how long a containerd that was adopted may take to abandon the calls of an earlier skiff.
const settleTime = time.Minute

const shimProgram = "containerd-shim-runc-v2"

// findLeftovers lists the shims and network namespaces that exist now.
func (r *Runtime) findLeftovers() *leftovers {
	l := &leftovers{at: time.Now(), shims: map[string]*process{}}
	err := eachProgram(bundles(r.o.DataDir), func(pid int, file string) {
		if filepath.Base(file) != shimProgram {
			return
		}
		if p, err := openProcess(pid); err == nil {
			if id := shimOf(pid); id != "" && programOf(pid) == file && l.shims[id] == nil {
				l.shims[id] = p
			} else {
				p.close()
			}
		}
	})
	var globbed error
	l.namespaces, globbed = filepath.Glob(filepath.Join(r.paths.State, "*", "netns", "*"))
	if err := errors.Join(err, globbed); err != nil {
		r.o.Log.Warn("failed to list what an earlier containerd has left", "error", err)
	}
	return l
}

func (l *leftovers) close() {
	for _, p := range l.shims {
		p.close()
	}
}

// shimOf returns the ID of the sandbox that a shim serves; empty for processes that start a shim or clean up after one.
func shimOf(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	var args []string
	for word := range bytes.SplitSeq(data, []byte{0}) {
		args = append(args, string(word))
	}
	i := slices.Index(args, "-id")
	if i < 0 || i+1 >= len(args) || slices.Contains(args, "start") || slices.Contains(args, "delete") {
		return ""
	}
	return args[i+1]
}

// endHelpers ends the CNI plugins that a containerd which has ended was running: nobody waits for them any more. What shims
// have done goes on.
func (r *Runtime) endHelpers() {
	pids, err := inCgroup(r.paths.Cgroup)
	if err != nil {
		return // there is none
	}
	dirs := append([]string{filepath.Join(bundles(r.o.DataDir), "*", "cni")}, r.o.CNIBin...)
	for _, pid := range pids {
		within := func(dir string) bool {
			ok, err := filepath.Match(dir, filepath.Dir(programOf(pid)))
			return err == nil && ok
		}
		if slices.ContainsFunc(dirs, within) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				r.o.Log.Warn("failed to end a CNI plugin that nobody waits for", "error", err)
			}
		}
	}
}

// removeLeftovers removes the leftovers that belong to no sandbox of the running containerd, once that is ready.
func (r *Runtime) removeLeftovers(ctx context.Context, l *leftovers, after time.Duration) {
	defer l.close()
	select {
	case <-ctx.Done():
		return
	case <-time.After(after):
	}
	known, err := r.sandboxes(ctx)
	if err == nil {
		err = errors.Join(r.endShims(ctx, l, known), r.removeNamespaces(l), r.removeLeases(ctx, l, known), r.removeSockets(l.at))
		if r.o.Sweep != nil {
			err = errors.Join(err, r.o.Sweep(known, l.at, r.paths.State))
		}
	}
	if err != nil && ctx.Err() == nil {
		r.o.Log.Warn("failed to remove all that an earlier containerd has left", "error", err)
	}
}

// sandboxes returns the IDs of all sandboxes that containerd knows.
func (r *Runtime) sandboxes(ctx context.Context) (known map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err = r.callCRI(ctx, func(c cri.RuntimeServiceClient, _ cri.ImageServiceClient) error {
			answer, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
			known = map[string]bool{}
			for _, s := range answer.GetItems() {
				known[s.Id] = true
			}
			return err
		})
		if err == nil {
			return known, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
	}
}

// endOrphanedShims ends shims that nobody will ever connect to again: their sandboxes were removed, and so was containerd's record of how to reach
// them, which it does before it starts them. It does not end those of sandboxes that did not start as far as to have something to stop.
func (r *Runtime) endOrphanedShims(ctx context.Context) error {
	l := r.findLeftovers()
	defer l.close()
	known, err := r.sandboxes(ctx)
	if err != nil {
		return err
	}
	for id := range l.shims {
		known[id] = known[id] || exists(filepath.Join(r.paths.State, "io.containerd.runtime.v2.task", criNamespace, id))
	}
	return r.endShims(ctx, l, known)
}

// endShims ends shims of sandboxes that do not exist, with all that runs in them.
func (r *Runtime) endShims(ctx context.Context, l *leftovers, known map[string]bool) (failed error) {
	for id, p := range l.shims {
		if known[id] {
			continue
		}
		r.o.Log.Info("ending the shim of a sandbox that does not exist", "sandbox", id)
		failed = errors.Join(failed, p.signal(syscall.SIGKILL))
		p.wait(ctx)
		root := filepath.Join(r.paths.Runc, criNamespace)
		if exists(filepath.Join(root, id)) {
			out, err := exec.CommandContext(ctx, r.binary("runc"), "--root", root, "delete", "--force", id).CombinedOutput()
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("failed to kill what ran in sandbox %s: %w: %s", id, err, strings.TrimSpace(string(out))))
			}
		}
	}
	return failed
}

// removeNamespaces removes network namespaces that nothing runs in. Sandboxes that have ended do without theirs.
func (r *Runtime) removeNamespaces(l *leftovers) (failed error) {
	used := map[uint64]bool{}
	spaces, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	for _, path := range spaces {
		if info, err := os.Stat(path); err == nil {
			used[info.Sys().(*syscall.Stat_t).Ino] = true
		}
	}
	for _, path := range l.namespaces {
		info, err := os.Stat(path)
		if err != nil || used[info.Sys().(*syscall.Stat_t).Ino] {
			continue
		}
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) { // it may never have been mounted
			failed = errors.Join(failed, fmt.Errorf("failed to unmount %s: %w", path, err))
			continue
		}
		failed = errors.Join(failed, os.Remove(path))
	}
	return failed
}

// removeSockets removes sockets, older than a time, of shims that were killed.
func (r *Runtime) removeSockets(before time.Time) (failed error) {
	sockets, err := filepath.Glob(filepath.Join(r.paths.Shims, "*"))
	for _, path := range sockets {
		if info, err := os.Stat(path); err != nil || !info.ModTime().Before(before) {
			continue
		}
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) {
			failed = errors.Join(failed, os.Remove(path))
		}
	}
	return errors.Join(err, failed)
}

// criNamespace is the namespace, in containerd and in runc, of everything made by CRI.
const criNamespace = "k8s.io"

// removeLeases removes the leases of abandoned calls, and with them the layers that only they kept. Each sandbox has a lease of its own name.
func (r *Runtime) removeLeases(ctx context.Context, l *leftovers, known map[string]bool) error {
	return r.dial(func(conn *grpc.ClientConn) (failed error) {
		ctx := metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace)
		var answer emptypb.Empty // unknown fields are kept in it
		if err := conn.Invoke(ctx, "/containerd.services.leases.v1.Leases/List", &emptypb.Empty{}, &answer); err != nil {
			return fmt.Errorf("failed to list leases: %w", err)
		}
		for _, lease := range fields(answer.ProtoReflect().GetUnknown())[1] {
			in := fields(lease)
			if len(in[1]) == 0 || len(in[2]) == 0 {
				continue
			}
			id, made := string(in[1][0]), timestamp(in[2][0])
			if known[id] || !made.Before(l.at) {
				continue
			}
			var request emptypb.Empty
			request.ProtoReflect().SetUnknown(deleteLease(id))
			if err := conn.Invoke(ctx, "/containerd.services.leases.v1.Leases/Delete", &request, &emptypb.Empty{}); err != nil {
				failed = errors.Join(failed, fmt.Errorf("failed to remove lease %s: %w", id, err))
			}
		}
		return failed
	})
}

// deleteLease encodes a request to delete a lease, and what it kept, synchronously.
func deleteLease(id string) []byte {
	out := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	return protowire.AppendVarint(protowire.AppendTag(out, 2, protowire.VarintType), 1)
}

// fields returns the length-delimited fields of a protobuf message: strings and messages.
func fields(message []byte) map[protowire.Number][][]byte {
	out := map[protowire.Number][][]byte{}
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return out
		}
		message = message[n:]
		if kind == protowire.BytesType {
			if value, n := protowire.ConsumeBytes(message); n >= 0 {
				out[number] = append(out[number], value)
			}
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return out
		}
		message = message[n:]
	}
	return out
}

// timestamp decodes a google.protobuf.Timestamp.
func timestamp(message []byte) time.Time {
	var at timestamppb.Timestamp
	if err := proto.Unmarshal(message, &at); err != nil || !at.IsValid() || len(message) == 0 {
		return time.Now() // without a timestamp it counts as new
	}
	return at.AsTime()
}
