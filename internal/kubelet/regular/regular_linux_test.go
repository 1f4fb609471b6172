package regular

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within fails the test, instead of hanging it, when open blocks.
func within(t *testing.T, open func() (*os.File, error)) (content string, err error) {
	t.Helper()
	type result struct {
		f   *os.File
		err error
	}
	opened := make(chan result, 1)
	go func() {
		f, err := open()
		opened <- result{f, err}
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			return "", r.err
		}
		defer r.f.Close()
		data, err := io.ReadAll(r.f)
		return string(data), err
	case <-time.After(20 * time.Second):
		t.Fatal("opening blocks")
		return "", nil
	}
}

// TestOpen opens what a container may leave in the place of a file.
func TestOpen(t *testing.T) {
	dir, outside := t.TempDir(), filepath.Join(t.TempDir(), "secret")
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(outside, []byte("secret"), 0o600))
	must(os.WriteFile(at("file"), []byte("content"), 0o600))
	must(os.Mkdir(at("directory"), 0o700))
	must(unix.Mkfifo(at("fifo"), 0o600))
	must(os.Symlink("file", at("inner")))
	must(os.Symlink(outside, at("absolute")))
	must(os.Symlink("../"+filepath.Base(filepath.Dir(outside))+"/secret", at("upward")))
	must(os.Symlink("fifo", at("to-fifo")))
	must(os.Symlink("/proc/self/fd/0", at("magic")))
	const any = "any"
	for name, want := range map[string]struct{ open, beneath, listed string }{ // the content, or "" for an error
		"file":      {"content", "content", "content"},
		"directory": {"", "", any},
		"fifo":      {}, "to-fifo": {}, "absolute": {}, "upward": {}, "magic": {}, "none": {},
		"inner":    {"", "content", ""},
		"../file":  {open: ""},
		"file/..x": {},
	} {
		for how, test := range map[string]struct {
			want string
			open func() (*os.File, error)
		}{
			"Open":        {want.open, func() (*os.File, error) { return Open(at(name)) }},
			"OpenBeneath": {want.beneath, func() (*os.File, error) { return OpenBeneath(dir, name) }},
			"OpenListed":  {want.listed, func() (*os.File, error) { return OpenListed(dir, name) }},
		} {
			got, err := within(t, test.open)
			switch {
			case test.want == any:
				if !errors.Is(err, unix.EISDIR) { // it was opened, and cannot be read as a file
					t.Errorf("%s %s: %q, %v; want a directory", how, name, got, err)
				}
			case test.want == "" && err == nil:
				t.Errorf("%s %s: %q, want an error", how, name, got)
			case test.want != "" && (err != nil || got != test.want):
				t.Errorf("%s %s: %q, %v; want %q", how, name, got, err, test.want)
			}
		}
	}
	if _, err := Open(at("fifo")); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a FIFO: %v", err)
	}
	if _, err := Open(at("none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nothing: %v", err)
	}
}
