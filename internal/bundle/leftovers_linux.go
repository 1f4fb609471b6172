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

// A containerd that is killed in the middle of something leaves what nobody knows of, as it writes down what it has only after it has it: a network
// namespace or a shim of a sandbox that never came to be, leases that keep layers. So what was there before a containerd was started and belongs to
// none of its sandboxes once it has started is removed.

// leftovers are what the sandboxes of an earlier containerd may have left.
type leftovers struct {
	at         time.Time
	shims      map[string]*process // by sandbox
	namespaces []string            // of networks, by path
}

// settleTime is how long a containerd that was adopted may take to give up what an earlier skiff asked it to do.
const settleTime = time.Minute

const shimProgram = "containerd-shim-runc-v2"

// findLeftovers lists what is there now.
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
		r.o.Log.Warn("what an earlier containerd has left is not known", "error", err)
	}
	return l
}

func (l *leftovers) close() {
	for _, p := range l.shims {
		p.close()
	}
}

// shimOf is the sandbox that a shim is for, if it is one that stays: others start one, or clean up after one.
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

// endHelpers ends what a containerd that has ended was having done, such as giving a sandbox an address: nobody waits for it any more. What shims
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
				r.o.Log.Warn("a CNI plugin that nobody waits for does not end", "error", err)
			}
		}
	}
}

// sweepUp removes what of the leftovers belongs to no sandbox of the containerd that runs now, once that is ready.
func (r *Runtime) sweepUp(ctx context.Context, l *leftovers, after time.Duration) {
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
		r.o.Log.Warn("what an earlier containerd has left is not all removed", "error", err)
	}
}

// sandboxes are all that containerd knows of.
func (r *Runtime) sandboxes(ctx context.Context) (known map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		err = r.ask(ctx, func(c cri.RuntimeServiceClient, _ cri.ImageServiceClient) error {
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

// endStrays ends shims that nobody will ever speak to again: their sandboxes were removed, and so was what containerd wrote down about how to reach
// them, which it does before it starts them. It does not end those of sandboxes that did not start as far as to have something to stop.
func (r *Runtime) endStrays(ctx context.Context) error {
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

// endShims ends shims of sandboxes that there are not, with all that runs in them.
func (r *Runtime) endShims(ctx context.Context, l *leftovers, known map[string]bool) (failed error) {
	for id, p := range l.shims {
		if known[id] {
			continue
		}
		r.o.Log.Info("a shim is left of a sandbox that does not exist; it is ended", "sandbox", id)
		failed = errors.Join(failed, p.signal(syscall.SIGKILL))
		p.wait(ctx)
		root := filepath.Join(r.paths.Runc, criNamespace)
		if exists(filepath.Join(root, id)) {
			out, err := exec.CommandContext(ctx, r.binary("runc"), "--root", root, "delete", "--force", id).CombinedOutput()
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("ending what ran in sandbox %s: %w: %s", id, err, strings.TrimSpace(string(out))))
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
			failed = errors.Join(failed, fmt.Errorf("unmounting %s: %w", path, err))
			continue
		}
		failed = errors.Join(failed, os.Remove(path))
	}
	return failed
}

// removeSockets removes sockets from before a time that shims which were killed have left.
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

// criNamespace is that of all that is made by CRI, in containerd and in runc.
const criNamespace = "k8s.io"

// removeLeases removes the leases of calls that were broken off, and with them what layers only they kept. Sandboxes have one each, named as they are.
func (r *Runtime) removeLeases(ctx context.Context, l *leftovers, known map[string]bool) error {
	return r.dial(func(conn *grpc.ClientConn) (failed error) {
		ctx := metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace)
		var answer emptypb.Empty // what it does not know of, it keeps
		if err := conn.Invoke(ctx, "/containerd.services.leases.v1.Leases/List", &emptypb.Empty{}, &answer); err != nil {
			return fmt.Errorf("listing leases: %w", err)
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
				failed = errors.Join(failed, fmt.Errorf("removing lease %s: %w", id, err))
			}
		}
		return failed
	})
}

// deleteLease is a request to delete a lease, and what it kept, at once.
func deleteLease(id string) []byte {
	out := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), id)
	return protowire.AppendVarint(protowire.AppendTag(out, 2, protowire.VarintType), 1)
}

// fields are those fields of a message that are bytes: texts and messages.
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

// timestamp reads a google.protobuf.Timestamp.
func timestamp(message []byte) time.Time {
	var at timestamppb.Timestamp
	if err := proto.Unmarshal(message, &at); err != nil || !at.IsValid() || len(message) == 0 {
		return time.Now() // without one it is not old
	}
	return at.AsTime()
}
