package etcd_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"skiff/internal/store"
	"skiff/internal/store/etcd"
	"skiff/internal/store/memory"
	"skiff/internal/store/storetest"
)

func TestEmbeddedContract(t *testing.T) {
	storetest.Run(t, openEmbedded)
}

// TestExternalContract reaches an embedded member as an external one is reached.
func TestExternalContract(t *testing.T) {
	storetest.Run(t, openExternal)
}

// TestServerContract is about etcd's own server in this process, which is there when it serves etcd clients.
func TestServerContract(t *testing.T) {
	storetest.Run(t, openServer)
}

func TestEmbeddedAgainstModel(t *testing.T) {
	t.Parallel()
	storetest.Compare(t, 3000, openMemory, openEmbedded)
}

func TestServerAgainstModel(t *testing.T) {
	t.Parallel()
	storetest.Compare(t, 1500, openMemory, openServer)
}

func TestExternalAgainstModel(t *testing.T) {
	t.Parallel()
	storetest.Compare(t, 1500, openMemory, openExternal)
}

func openMemory(*testing.T) store.Store { return memory.New(memory.Options{}) }

func openEmbedded(t *testing.T) store.Store {
	return embed(t, etcd.EmbedOptions{Dir: t.TempDir()})
}

func openServer(t *testing.T) store.Store { return listening(t) }

func listening(t *testing.T) *etcd.Store {
	return embed(t, etcd.EmbedOptions{Dir: t.TempDir(), Listen: "unix:" + socketPath(t)})
}

func openExternal(t *testing.T) store.Store {
	client, err := etcd.Dial(context.Background(), etcd.DialOptions{Endpoints: []string{listening(t).ListenAddress()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// embed opens a store and closes it when the test ends, if the test has not.
func embed(t testing.TB, opts etcd.EmbedOptions) *etcd.Store {
	t.Helper()
	s, err := etcd.Embed(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// socketPath is short, as sockets need; the names of test directories are long.
func socketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
