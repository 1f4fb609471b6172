package stats

import (
	"slices"
	"testing"
	"time"
)

func TestParseNetwork(t *testing.T) {
	routes := "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n" +
		"wlan0\t00000000\t0100000A\t0003\t0\t0\t600\t00000000\t0\t0\t0\n" +
		"ens3\t00000000\t0100000A\t0003\t0\t0\t100\t00000000\t0\t0\t0\n" +
		"veth1\t0203A8C0\t00000000\t0005\t0\t0\t0\tFFFFFFFF\t0\t0\t0\n"
	counts := `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   92852     909    0    0    0     0          0         0    92852     909    0    0    0     0       0          0
  ens3: 5000 40 3 0 0 0 0 0 6000 50 4 0 0 0 0 0
 veth1:12 1 0 0 0 0 0 0 13 1 0 0 0 0 0 0
  cni0:12345678901 1 0 0 0 0 0 0 13 1 0 0 0 0 0 0
`
	n := parseNetwork([]byte(routes), []byte(counts))
	want := []Interface{{"ens3", 5000, 3, 6000, 4}, {"cni0", 12345678901, 0, 13, 0}}
	if n.Default != "ens3" || !slices.Equal(n.Interfaces, want) {
		t.Errorf("got %+v", n)
	}
	if n := parseNetwork(nil, nil); n.Default != "eth0" || n.Interfaces != nil {
		t.Errorf("of nothing comes %+v", n)
	}
}

// The machine that the test runs on has what every machine has.
func TestThisMachine(t *testing.T) {
	var m procMachine
	if boot := m.BootTime(); boot.IsZero() || time.Since(boot) <= 0 {
		t.Errorf("it was booted at %v", boot)
	}
	if total, _, huge := m.Memory(); total < 1<<20 || huge > total {
		t.Errorf("it has %d bytes of memory, %d for huge pages", total, huge)
	}
	if fs, err := m.FileSystem(t.TempDir()); err != nil || fs.Capacity == 0 || fs.Free < fs.Available || fs.Capacity < fs.Free {
		t.Errorf("file system: %+v, %v", fs, err)
	}
	if _, err := m.FileSystem("/no/such/directory"); err == nil {
		t.Error("a directory that is not there is in a file system")
	}
	if _, err := m.Network(); err != nil {
		t.Error(err)
	}
	if running, limit, err := m.Tasks(); err != nil || running < 1 || limit < running {
		t.Errorf("%d of %d tasks, %v", running, limit, err)
	}
}
