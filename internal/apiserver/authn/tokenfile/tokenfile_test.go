package tokenfile_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver/authn/tokenfile"
)

func read(t *testing.T, content string) (*tokenfile.Authenticator, string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a, err := tokenfile.Read(path, slog.New(slog.NewTextHandler(&log, nil)))
	return a, log.String(), err
}

func TestFile(t *testing.T) {
	a, log, err := read(t, "sesame-1,anna,1,\"a,b\"\nsesame-2,bert,2\n,carl,3\nsesame-2,dora,4,c,ignored\n")
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]string{"sesame-1": "anna 1 a|b", "sesame-2": "dora 4 c", "": "", "sesame-3": ""} {
		user, err := a.Authenticate(context.Background(), token)
		got := ""
		if user != nil {
			got = user.Username + " " + user.UID + " " + strings.Join(user.Groups, "|")
		}
		if got != want || err != nil {
			t.Errorf("%q: got %q, %v", token, got, err)
		}
	}
	if !strings.Contains(log, "empty token") || !strings.Contains(log, "duplicate token") || !strings.Contains(log, "record=4") || strings.Contains(log, "sesame") {
		t.Errorf("logged %s", log)
	}
}

func TestBadFiles(t *testing.T) {
	for content, want := range map[string]string{
		"sesame,anna\n":        "must have at least 3 columns (token, user name, user uid), found 2",
		"sesame,\"anna\"x,1\n": "line 1",
		"sesame,\"anna,1\nx\n": "line 1",
		"a,anna,1\nsesame,b\n": "found 2",
	} {
		if _, _, err := read(t, content); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%q: got %v", content, err)
		}
	}
	if _, err := tokenfile.Read(filepath.Join(t.TempDir(), "none"), slog.New(slog.DiscardHandler)); !os.IsNotExist(err) {
		t.Errorf("got %v", err)
	}
}
