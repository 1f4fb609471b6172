package datadir

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// asRoot skips a test that has to make files of other users.
func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make files of another user")
	}
}

func mkdir(t *testing.T, dir string, mode fs.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

const otherUser = 1

func chown(t *testing.T, path string) string {
	t.Helper()
	if err := os.Lchown(path, otherUser, otherUser); err != nil {
		t.Fatal(err)
	}
	return path
}

func link(t *testing.T, to, at string) string {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestRefused: a data directory that another user owns, may write to, or could put another in place of is refused, and nothing is written there.
func TestRefused(t *testing.T) {
	asRoot(t)
	root := t.TempDir()
	private := mkdir(t, filepath.Join(root, "private"), 0o700)
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, want string }{
		"owned by another":         {chown(t, mkdir(t, filepath.Join(root, "theirs"), 0o700)), "belongs to the user with uid 1"},
		"group may write":          {mkdir(t, filepath.Join(root, "group"), 0o770), "chmod go-w"},
		"all may write":            {mkdir(t, filepath.Join(root, "all"), 0o777), "chmod go-w"},
		"sticky itself":            {mkdir(t, filepath.Join(root, "sticky"), 0o777|fs.ModeSticky), "chmod go-w"},
		"below one of another":     {filepath.Join(chown(t, mkdir(t, filepath.Join(root, "above"), 0o755)), "below"), "belongs to the user with uid 1"},
		"below one that is open":   {filepath.Join(mkdir(t, filepath.Join(root, "open"), 0o777), "below"), "chmod go-w"},
		"a link of another":        {chown(t, link(t, private, filepath.Join(root, "link"))), "belongs to the user with uid 1"},
		"a link to one of another": {link(t, filepath.Join(root, "theirs"), filepath.Join(root, "to-theirs")), "belongs to the user with uid 1"},
		"a file":                   {file, "not a directory"},
	} {
		for what, open := range map[string]func(string) error{"Prepare": Prepare, "Check": Check} {
			if err := open(c.dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s answers %v, want %q", name, what, err, c.want)
			}
		}
		if entries, _ := os.ReadDir(c.dir); len(entries) > 0 {
			t.Errorf("%s: %v was written", name, entries)
		}
	}
}

// TestPrepare: a data directory in a sticky directory, one behind a link, and one whose parents do not exist yet are accepted, and become private.
func TestPrepare(t *testing.T) {
	root := t.TempDir()
	sticky := mkdir(t, filepath.Join(root, "sticky"), 0o777|fs.ModeSticky)
	readable := mkdir(t, filepath.Join(root, "readable"), 0o755)
	for _, dir := range []string{filepath.Join(sticky, "mine"), filepath.Join(sticky, "deep", "er"), readable, link(t, readable, filepath.Join(root, "link")), link(t, "readable", filepath.Join(root, "relative"))} {
		if err := Prepare(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
			continue
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, info, err)
		}
	}
}
