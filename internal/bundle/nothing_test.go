//go:build !bundle

package bundle

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program that was built without the bundle says so, and what to do.
func TestNothingCarried(t *testing.T) {
	dir := t.TempDir()
	_, _, err := Unpack(t.Context(), "", dir)
	if !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "build it with make") {
		t.Error(err)
	}
	if err := Notices(&bytes.Buffer{}); err == nil {
		t.Error("there are notices")
	}
	if _, err := Kubectl(dir); err == nil {
		t.Error("there is a kubectl")
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("something was unpacked: %v", entries)
	}
	// What another program says is passed on.
	other := filepath.Join(t.TempDir(), "skiff")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho 'skiff: no room' >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Unpack(t.Context(), other, dir); err == nil || err.Error() != "no room" {
		t.Error(err)
	}
	if _, err := Start(context.Background(), Options{DataDir: dir}); err == nil {
		t.Error("a runtime without images")
	}
}
