package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// sizeBudget bounds the size of bin/skiff, with containerd, runc, CNI plugins, pause and kubectl in it: a tenth more than it was when this was
// written. internal/bundle/slim.sh names what would make it 25 MB larger.
const sizeBudget = 129_000_000

func TestSize(t *testing.T) {
	info, err := os.Stat(filepath.Join("..", "..", "bin", "skiff"))
	if err != nil {
		t.Fatalf("%v\nmake builds it", err)
	}
	t.Logf("bin/skiff has %.1f MB", float64(info.Size())/1e6)
	if info.Size() > sizeBudget {
		t.Errorf("bin/skiff has %d bytes, more than its budget of %d", info.Size(), sizeBudget)
	}
}
