package bundle

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// archiveOf is a compressed archive of files.
func archiveOf(t *testing.T, files ...string) *bytes.Reader {
	t.Helper()
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o755, Size: int64(len(files[i+1]))}
		if strings.HasSuffix(files[i], "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(out.Bytes())
}

func TestExtract(t *testing.T) {
	dir := t.TempDir()
	if err := extract(archiveOf(t, "bin/", "", "bin/program", "content"), dir); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "bin", "program"))
	if err != nil || info.Mode().Perm() != 0o755 || info.Size() != 7 {
		t.Errorf("%v, %v", info, err)
	}
	for _, name := range []string{"../outside", "/etc/outside", "bin/../../outside"} {
		if err := extract(archiveOf(t, name, "x"), t.TempDir()); err == nil {
			t.Errorf("%s was unpacked", name)
		}
	}
	whole := archiveOf(t, "a", strings.Repeat("x", 100_000))
	half := make([]byte, whole.Len()-10)
	whole.Read(half)
	if err := extract(bytes.NewReader(half), t.TempDir()); err == nil {
		t.Error("an archive that breaks off was unpacked")
	}
}

func TestConfiguration(t *testing.T) {
	s := containerdConfig{Paths: pathsOf(`/a "quoted" dir`), Pause: "skiff.internal/pause:1", RestrictOOM: true}
	s.Bundle, s.CNIBin = "/bundle", []string{"/one", "/two"}
	text := s.text()
	for _, want := range []string{
		"version = 4\n", `root = "/a \"quoted\" dir/containerd"`, "oom_score = 0\n", "restrict_oom_score_adj = true\n", `sandbox = "skiff.internal/pause:1"`, `bin_dirs = ["/one", "/two"]`,
		"SystemdCgroup = false\n", `BinaryName = "/bundle/bin/runc"`, `stats_collect_period = "15s"`, "use_internal_loopback = true\n", `level = "warn"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s is not in\n%s", want, text)
		}
	}
	s.RestrictOOM, s.SystemdCgroup, s.Debug = false, true, true
	other := s.text()
	if strings.Contains(string(text), "$") || strings.Contains(string(text), "= \n") {
		t.Errorf("something is not filled in:\n%s", text)
	}
	for _, want := range []string{"oom_score = -999\n", "restrict_oom_score_adj = false\n", "SystemdCgroup = true\n", `level = "debug"`} {
		if !strings.Contains(string(other), want) {
			t.Errorf("%s is not in\n%s", want, other)
		}
	}
	if printable("/a\nb") || printable("/\xff") || !printable("/Größe") {
		t.Error("what can be written as it is")
	}
}

// However long the path of the data directory, sockets have short ones.
func TestPaths(t *testing.T) {
	p := pathsOf("/" + strings.Repeat("long/", 60))
	if len(p.Socket+".ttrpc") > 100 || len(p.Shims) > 42 { // containerd's own bounds
		t.Errorf("%s, %s", p.Socket, p.Shims)
	}
	if pathsOf("/a").Run == pathsOf("/b").Run {
		t.Error("two data directories share sockets")
	}
}
