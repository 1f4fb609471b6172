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
	write := func(name, namespace string, at time.Time) {
		t.Helper()
		content := fmt.Sprintf(`{"kind":"cniCacheV1","result":{"interfaces":[{"name":"veth"},{"name":"eth0","sandbox":%q}]}}`, namespace)
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
	}
	write("pods-mine-eth0", namespace, born.Add(30*time.Millisecond))
	write("more-mine-eth1", namespace, born.Add(40*time.Millisecond))
	write("pods-other-eth0", namespace, born.Add(50*time.Millisecond))
	write("pods-old-eth0", namespace, from.Add(-time.Hour))
	write("pods-unborn-eth0", "/no/such/namespace", born.Add(30*time.Millisecond))
	if err := os.WriteFile(filepath.Join(dir, "pods-broken-eth0"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		sandbox    string
		start, end time.Duration // after born
		ok         bool
	}{{"mine", 0, 40 * time.Millisecond, true}, {"unborn", -20 * time.Millisecond, 30 * time.Millisecond, true}, {"old", 0, 0, false}, {"broken", 0, 0, false}, {"nobody", 0, 0, false}, {"", 0, 0, false}} {
		start, end, ok := cniTimes(dir, c.sandbox, from, to)
		if ok != c.ok || ok && (start.Sub(born) != c.start || end.Sub(born) != c.end) {
			t.Errorf("%s: from %v to %v, %v", c.sandbox, start.Sub(born), end.Sub(born), ok)
		}
	}
	if _, _, ok := cniTimes(filepath.Join(dir, "none"), "mine", from, to); ok {
		t.Error("a directory that is not there has times")
	}
}
