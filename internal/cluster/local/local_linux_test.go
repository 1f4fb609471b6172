package local

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestResolvers(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	stub := write("stub", "nameserver 127.0.0.53\nsearch example.com\n")
	real := write("real", "nameserver 192.0.2.53\nnameserver ::1\nsearch example.com\n")
	for _, c := range []struct {
		files []string
		want  string
	}{
		{[]string{real, stub}, "nameserver 192.0.2.53\nsearch example.com\n"},
		{[]string{stub, real}, "nameserver 192.0.2.53\nsearch example.com\n"},
		{[]string{stub, filepath.Join(dir, "none")}, "search example.com\n"},
		{[]string{filepath.Join(dir, "none")}, ""},
	} {
		if got := resolvers(c.files...); got != c.want {
			t.Errorf("%v: %q, not %q", c.files, got, c.want)
		}
	}
}

func TestFileOfImage(t *testing.T) {
	var layer, archive bytes.Buffer
	z := gzip.NewWriter(&layer)
	add := func(w *tar.Writer, name string, data []byte) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
	}
	files := tar.NewWriter(z)
	add(files, "etc/pause", []byte("another"))
	add(files, "pause", []byte("program"))
	files.Close()
	z.Close()
	blobs := tar.NewWriter(&archive)
	add(blobs, "index.json", []byte("{}"))
	add(blobs, "blobs/sha256/abc", layer.Bytes())
	blobs.Close()
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	if data, err := fileOfImage(path, "pause"); err != nil || string(data) != "program" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := fileOfImage(path, "none"); err == nil {
		t.Error("a file that is not there was found")
	}
}

func TestPlaceFile(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	for _, content := range []string{"one", "another"} {
		if err := os.WriteFile(from+".new", []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(from+".new", from); err != nil { // as programs are replaced
			t.Fatal(err)
		}
		for range 2 {
			if err := placeFile(from, to); err != nil {
				t.Fatal(err)
			}
			if data, err := os.ReadFile(to); err != nil || string(data) != content {
				t.Errorf("%q, %v", data, err)
			}
		}
	}
}

// What f does to its thread is nobody else's.
func TestOnThread(t *testing.T) {
	before, err := os.Readlink("/proc/thread-self/ns/uts")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		err := onThread(func() error {
			if unix.Gettid() == os.Getpid() {
				t.Error("it is the thread that cannot end")
			}
			return unix.Unshare(unix.CLONE_NEWUTS)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		if now, err := os.Readlink("/proc/thread-self/ns/uts"); err != nil || now != before {
			t.Fatalf("a thread is in %s, not %s: %v", now, before, err)
		}
	}
}

func TestTakeFiles(t *testing.T) {
	l := fresh(t, "ship", 1)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("kind: KubeSchedulerConfiguration\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags, err := l.takeFiles([]string{"--max-pods=3", "--scheduler-config=" + file, "--tls-san=" + file})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"--max-pods=3", "--scheduler-config=/etc/skiff/1-scheduler-config.yaml", "--tls-san=" + file}
	if !slices.Equal(flags, want) {
		t.Errorf("%v, not %v", flags, want)
	}
	if data, err := os.ReadFile(filepath.Join(l.root(l.Nodes[0]), "etc/skiff/1-scheduler-config.yaml")); err != nil || !strings.Contains(string(data), "kind") {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := l.takeFiles([]string{"--token-auth-file=" + file + ".none"}); err == nil || !strings.Contains(err.Error(), "--token-auth-file") {
		t.Errorf("%v", err)
	}
}

// Control groups are made in every hierarchy, take processes, and are removed with all that is in them.
func TestGroups(t *testing.T) {
	l := fresh(t, "ship", 1)
	g, err := findGroups(l.group(l.Nodes[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := g.create(256 << 20); err != nil {
		t.Fatal(err)
	}
	for _, h := range g.in {
		if h.unified {
			if err := os.Mkdir(filepath.Join(h.at, g.path, leaf), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if h.has("memory") {
			if limit, err := os.ReadFile(filepath.Join(h.at, g.path, "memory.limit_in_bytes")); err != nil || strings.TrimSpace(string(limit)) != "268435456" {
				t.Errorf("the limit is %s, %v", limit, err)
			}
		}
	}
	err = onThread(func() error {
		unified, err := g.enter(unix.Gettid())
		if unified != nil {
			unified.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if err := g.remove(t.Context()); err != nil {
		t.Error(err)
	}
	g.removeAbove()
	if left := g.all(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if pids := g.processes(); len(pids) > 0 {
		t.Errorf("%v are in groups that are not there", pids)
	}
}
