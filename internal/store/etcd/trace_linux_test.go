package etcd

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// tracedCalls are the system calls that change files, or make changes durable.
const tracedCalls = "openat,creat,write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,fsync,fdatasync,sync_file_range,syncfs,ftruncate,truncate,fallocate," +
	"rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,lseek"

// straceCommand returns a command that runs a program under strace.
func straceCommand(t *testing.T, args, program []string) *exec.Cmd {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed: run make packages")
	}
	return exec.Command(strace, append(args, program...)...)
}

// tracedCall is a system call of a trace. It began with the line start and was over with the line end.
type tracedCall struct {
	name       string
	args       []string
	result     int64
	start, end int
}

// readTrace reads the file that strace -f -y -xx has written, calls in the order in which they ended. began is called with each call
// when it begins; its result is not known then.
func readTrace(t *testing.T, path string, began, ended func(tracedCall)) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unfinished := map[string]tracedCall{}
	text := map[string]string{}
	reader := bufio.NewReaderSize(f, 1<<20)
	for line := 1; ; line++ {
		content, err := reader.ReadString('\n')
		if err != nil {
			return // a last line without its end was not over
		}
		pid, content, _ := strings.Cut(strings.TrimSuffix(content, "\n"), " ")
		content = strings.TrimLeft(content, " ")
		if rest, ok := strings.CutPrefix(content, "<... "); ok {
			_, rest, _ = strings.Cut(rest, " resumed>")
			call := unfinished[pid]
			call.finish(t, text[pid]+rest, line)
			delete(unfinished, pid)
			ended(call)
			continue
		}
		name, rest, ok := strings.Cut(content, "(")
		if !ok || strings.HasPrefix(content, "+++") || strings.HasPrefix(content, "---") {
			continue // the end of a thread, a signal
		}
		call := tracedCall{name: name, start: line}
		if begun, ok := strings.CutSuffix(rest, " <unfinished ...>"); ok {
			unfinished[pid], text[pid] = call, begun
			call.args = strings.Split(begun, ", ")
			began(call)
			continue
		}
		call.finish(t, rest, line)
		began(call)
		ended(call)
	}
}

// finish takes the arguments and the result of a call from its text.
func (c *tracedCall) finish(t *testing.T, text string, line int) {
	t.Helper()
	at := strings.LastIndex(text, "= ")
	args, ok := strings.CutSuffix(strings.TrimRight(text[:max(at, 0)], " "), ")")
	if !ok {
		t.Fatalf("line %d: not a call: %.100s", line, text)
	}
	c.args, c.end = strings.Split(args, ", "), line
	if _, err := fmt.Sscanf(text[at+2:], "%d", &c.result); err != nil {
		c.result = -1 // "?": the process ended
	}
}

func (c tracedCall) number(t *testing.T, i int) int64 {
	t.Helper()
	n, err := strconv.ParseInt(c.args[i], 0, 64)
	if err != nil {
		t.Fatalf("line %d: %v", c.start, err)
	}
	return n
}

// fd returns a file descriptor and its path from an argument such as 5<\x2f\x74>, or 5<\x2f\x74>(deleted) if the file was deleted.
func (c tracedCall) fd(t *testing.T, i int) (fd, path string) {
	t.Helper()
	fd, rest, _ := strings.Cut(c.args[i], "<")
	encoded, state, _ := strings.Cut(rest, ">")
	if strings.Contains(state, "deleted") {
		return fd, ""
	}
	return fd, string(unescape(t, encoded))
}

// bytes returns a string argument.
func (c tracedCall) bytes(t *testing.T, i int) []byte {
	t.Helper()
	if strings.HasSuffix(c.args[i], "...") {
		t.Fatalf("line %d: strace has cut an argument short", c.start)
	}
	return unescape(t, strings.Trim(c.args[i], `"`))
}

// path returns the path of an argument that follows the descriptor of its directory.
func (c tracedCall) path(t *testing.T, i int) string {
	t.Helper()
	_, dir := c.fd(t, i-1)
	path := string(c.bytes(t, i))
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return filepath.Clean(path)
}

func unescape(t *testing.T, s string) []byte {
	t.Helper()
	decoded, err := hex.DecodeString(strings.ReplaceAll(s, `\x`, ""))
	if err != nil {
		t.Fatalf("%.40s: %v", s, err)
	}
	return decoded
}

// disk replays a trace of a directory: it holds the content of its files, and what would be left of it after a power failure.
type disk struct {
	root    string
	top     *node
	offsets map[string]int64 // offsets of the file descriptors
	ignore  func(path string) bool
	nodes   map[int]*node // of the descriptors of calls under way, by the line with which these began
}

// node is a file or a directory.
type node struct {
	names   map[string]*node // the entries of a directory; nil for a file
	synced  map[string]*node // the entries that are durable
	content []byte           // the durable content of a file
	pending []operation      // the operations that are not durable yet
	size    int64
}

// operation is a write, or a change of the size if data is nil.
type operation struct {
	line int
	at   int64
	data []byte
}

func newDisk(root string) *disk {
	return &disk{root: root, top: newDirectory(), offsets: map[string]int64{}, nodes: map[int]*node{}, ignore: func(string) bool { return false }}
}

func newDirectory() *node { return &node{names: map[string]*node{}, synced: map[string]*node{}} }

// find returns the node at a path, or nil, and the directory that it is in.
func (d *disk) find(path string) (n, parent *node, name string) {
	relative, err := filepath.Rel(d.root, path)
	if err != nil || strings.HasPrefix(relative, "..") {
		return nil, nil, ""
	}
	if relative == "." {
		return d.top, nil, ""
	}
	n = d.top
	for part := range strings.SplitSeq(relative, "/") {
		if n == nil || n.names == nil {
			return nil, nil, ""
		}
		parent, name = n, part
		n = n.names[part]
	}
	return n, parent, name
}

// begin notes which file a call is about: until the call is over the file may have another name.
func (d *disk) begin(t *testing.T, c tracedCall) {
	t.Helper()
	switch c.name {
	case "write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync":
		_, path := c.fd(t, 0)
		if n, _, _ := d.find(path); n != nil {
			d.nodes[c.start] = n
		}
	}
}

// apply applies a traced call to the disk.
func (d *disk) apply(t *testing.T, c tracedCall) {
	t.Helper()
	defer delete(d.nodes, c.start)
	if c.result < 0 {
		return
	}
	switch c.name {
	case "openat":
		path := c.path(t, 1)
		n, parent, name := d.find(path)
		if n == nil && parent != nil && strings.Contains(c.args[2], "O_CREAT") {
			n = &node{}
			parent.names[name] = n
		}
		if n != nil && strings.Contains(c.args[2], "O_TRUNC") {
			n.change(operation{line: c.end})
		}
		d.offsets[strconv.FormatInt(c.result, 10)] = 0
	case "lseek":
		fd, _ := c.fd(t, 0)
		d.offsets[fd] = c.result
	case "write":
		fd, _ := c.fd(t, 0)
		if n := d.nodes[c.start]; n != nil {
			n.change(operation{c.end, d.offsets[fd], c.bytes(t, 1)[:c.result]})
			d.offsets[fd] += c.result
		}
	case "pwrite64":
		if n := d.nodes[c.start]; n != nil {
			n.change(operation{c.end, c.number(t, 3), c.bytes(t, 1)[:c.result]})
		}
	case "ftruncate":
		if n := d.nodes[c.start]; n != nil {
			n.change(operation{line: c.end, at: c.number(t, 1)})
		}
	case "fallocate":
		if n := d.nodes[c.start]; n != nil && !strings.Contains(c.args[1], "KEEP_SIZE") {
			n.change(operation{line: c.end, at: max(n.size, c.number(t, 2)+c.number(t, 3))})
		}
	case "mkdirat":
		if n, parent, name := d.find(c.path(t, 1)); n == nil && parent != nil {
			parent.names[name] = newDirectory()
		}
	case "unlinkat":
		if n, parent, name := d.find(c.path(t, 1)); n != nil && parent != nil {
			delete(parent.names, name)
		}
	case "renameat", "renameat2":
		n, from, name := d.find(c.path(t, 1))
		if n == nil {
			return
		}
		_, to, newName := d.find(c.path(t, 3))
		if to == nil {
			t.Fatalf("line %d: a file leaves the directory", c.start)
		}
		delete(from.names, name)
		to.names[newName] = n
	case "fsync", "fdatasync":
		_, path := c.fd(t, 0)
		if n := d.nodes[c.start]; n != nil && !d.ignore(path) {
			n.sync(c.start)
		}
	default:
		if strings.Contains(strings.Join(c.args, " "), hexOf(d.root)) {
			t.Fatalf("line %d: %s of a file in the directory, which the test does not know", c.start, c.name)
		}
	}
}

func hexOf(s string) string {
	var out strings.Builder
	for _, b := range []byte(s) {
		fmt.Fprintf(&out, `\x%02x`, b)
	}
	return out.String()
}

func (n *node) change(op operation) {
	n.size = max(n.size, op.at+int64(len(op.data)))
	if op.data == nil {
		n.size = op.at
	}
	n.pending = append(n.pending, op)
}

// sync makes durable what was over when the sync began.
func (n *node) sync(started int) {
	if n.names != nil {
		n.synced = map[string]*node{}
		for name, child := range n.names {
			n.synced[name] = child
		}
		return
	}
	left := n.pending[:0]
	for _, op := range n.pending {
		if op.line < started {
			n.content = op.applyTo(n.content)
		} else {
			left = append(left, op)
		}
	}
	n.pending = left
}

func (op operation) applyTo(content []byte) []byte {
	end := op.at + int64(len(op.data))
	if op.data == nil && end <= int64(len(content)) {
		return content[:end]
	}
	if grow := end - int64(len(content)); grow > 0 {
		content = append(content, make([]byte, grow)...)
	}
	copy(content[op.at:], op.data)
	return content
}

// write writes what is durable to a directory. For the rest lucky decides for each sector whether it was written anyway.
func (d *disk) write(t *testing.T, dir string, lucky func() bool) {
	t.Helper()
	d.top.write(t, dir, lucky)
}

func (n *node) write(t *testing.T, path string, lucky func() bool) {
	t.Helper()
	if n.names == nil {
		content := bytes.Clone(n.content)
		for _, op := range n.pending {
			content = op.applyPartly(content, lucky)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, child := range n.synced {
		child.write(t, filepath.Join(path, name), lucky)
	}
}

// applyPartly applies those sectors of an operation that lucky says were written.
func (op operation) applyPartly(content []byte, lucky func() bool) []byte {
	if op.data == nil {
		if lucky() {
			return op.applyTo(content)
		}
		return content
	}
	for data, at := op.data, op.at; len(data) > 0; {
		n := min(sectorBytes-int(at%sectorBytes), len(data))
		if lucky() {
			content = operation{at: at, data: data[:n]}.applyTo(content)
		}
		data, at = data[n:], at+int64(n)
	}
	return content
}
