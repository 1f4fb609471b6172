package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Images are built, saved, loaded, listed and removed whether a cluster runs or not.
func TestImages(t *testing.T) {
	u := newUser(t)
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Dockerfile", "FROM scratch\nCOPY hello /\nCMD [\"/hello\"]\n")
	write("hello", "hello")
	write("Other", "FROM app:1\nENV A=1\n")
	archive := filepath.Join(dir, "app.tar")

	u.does("built docker.io/library/app:1", "image", "build", "-t", "app:1", dir)
	u.does("built registry.example/other:latest", "image", "build", "-t", "registry.example/other", "-f", filepath.Join(dir, "Other"), dir)
	out := u.does("app:1", "image", "ls")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 3 || !strings.HasPrefix(lines[0], "IMAGE") || !strings.Contains(lines[1], "sha256:") {
		t.Errorf("image ls says\n%s", out)
	}
	u.does("", "image", "save", "app:1", "-o", archive)
	u.does("removed docker.io/library/app:1", "image", "rm", "app:1")
	u.does("loaded docker.io/library/app:1", "image", "load", archive)
	u.does("loaded docker.io/library/copy:2", "image", "load", "-t", "copy:2", archive)
	u.does("copy:2", "image", "ls")
	u.does("built docker.io/library/apart:latest", "image", "build", "-t", "apart", "-o", archive, dir)
	if out := u.does("", "image", "ls"); strings.Contains(out, "apart") {
		t.Errorf("an image that was only written to a file is here too:\n%s", out)
	}
	u.does("loaded docker.io/library/apart:latest", "image", "load", archive)

	u.fails("there is no such image", "image", "rm", "never")
	u.fails("there is no such image", "image", "save", "never", "-o", archive)
	u.fails("no such file", "image", "load", filepath.Join(dir, "never"))
	u.fails("this is no archive", "image", "load", os.DevNull)
	u.fails("--tag", "image", "build", dir)
	u.fails("invalid reference format", "image", "build", "-t", "A B", dir)
	write("Dockerfile", "FROM scratch\nRUN make\n")
	u.fails("runs no programs", "image", "build", "-t", "x", dir)
}
