package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster/kubeconfig"
	"skiff/internal/cluster/process"
)

// TestPurge: purging a stopped cluster removes its data and its context in the user's kubeconfig, and nothing that skiff has not made.
func TestPurge(t *testing.T) {
	dir, user := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", user)
	unlock, err := process.LockPIDFile(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := kubeconfig.Write(KubeconfigPath(dir), "mine", &api.Cluster{Server: "https://mine"}, &api.AuthInfo{Token: "t"}); err != nil {
		t.Fatal(err)
	}
	if _, err := kubeconfig.Merge(dir, "mine"); err != nil {
		t.Fatal(err)
	}
	put(t, process.LogPath(dir), "")
	put(t, process.LogPath(dir)+".1", "")
	put(t, filepath.Join(dir, agentStateFile+".part"), "")
	if _, _, err := (EncryptionConfig{Secrets: true}).locate(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, usageDir), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, usageDir, "history"), "")
	put(t, filepath.Join(dir, "theirs"), "")
	if err := Purge(dir, "mine"); err == nil || !strings.Contains(err.Error(), "still in use") {
		t.Errorf("purged while in use: %v", err)
	}
	unlock()
	if err := Purge(dir, "mine"); err == nil || !strings.Contains(err.Error(), "not skiff's") {
		t.Errorf("a file of somebody else: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 || entries[0].Name() != "theirs" {
		t.Errorf("left are %v, %v", entries, err)
	}
	if _, err := os.Stat(user); !os.IsNotExist(err) {
		t.Errorf("the user's kubeconfig: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "theirs")); err != nil {
		t.Fatal(err)
	}
	if err := Purge(dir, "mine"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory is still there: %v", err)
	}
}
