package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCNITimes(t *testing.T) {
	dir := t.TempDir()
	namespace := filepath.Join(dir, "netns")
	if err := os.WriteFile(namespace, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	born, ok := namespaceTime(namespace)
	if !ok {
		t.Fatal("a file has no time")
	}
	from, to := born.Add(-20*time.Millisecond), born.Add(100*time.Millisecond)
	write := func(name, uid, sandbox string, at time.Time) {
		t.Helper()
		content := fmt.Sprintf(`{"kind":"cniCacheV1","cniArgs":[["IgnoreUnknown","1"],["K8S_POD_NAME","web"],["K8S_POD_UID",%q]],"result":{"interfaces":[{"name":"veth"},{"name":"eth0","sandbox":%q}]}}`, uid, sandbox)
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("pods-1-eth0", "mine", namespace, born.Add(30*time.Millisecond))
	write("pods-2-eth0", "other", namespace, born.Add(50*time.Millisecond))
	write("pods-3-eth0", "mine", namespace, from.Add(-time.Hour)) // of a sandbox before
	write("pods-4-eth0", "unborn", "/no/such/namespace", born.Add(30*time.Millisecond))
	if err := os.WriteFile(filepath.Join(dir, "broken"), []byte("mine {"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		uid        string
		start, end time.Duration // after born
		ok         bool
	}{{"mine", 0, 30 * time.Millisecond, true}, {"unborn", -20 * time.Millisecond, 30 * time.Millisecond, true}, {"nobody", 0, 0, false}} {
		start, end, ok := cniTimes(dir, c.uid, from, to)
		if ok != c.ok || ok && (start.Sub(born) != c.start || end.Sub(born) != c.end) {
			t.Errorf("%s: from %v to %v, %v", c.uid, start.Sub(born), end.Sub(born), ok)
		}
	}
	if _, _, ok := cniTimes(filepath.Join(dir, "none"), "mine", from, to); ok {
		t.Error("a directory that is not there has times")
	}
}
