package memory

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestCleanMappings(t *testing.T) {
	const smaps = `00400000-01400000 r-xp 00000000 fe:00 1 /bin/skiff
Rss:  100 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
01400000-02400000 r--p 01000000 fe:00 1 /bin/skiff
Private_Dirty:         0 kB
Anonymous:             0 kB
Swap:                  0 kB
02400000-02500000 r--p 02000000 fe:00 1 /bin/skiff
Private_Dirty:         8 kB
Anonymous:             8 kB
02500000-02600000 rw-p 02100000 fe:00 1 /bin/skiff
Private_Dirty:         0 kB
7f0000000000-7f0000001000 r-xp 00000000 fe:00 2 /lib/libc.so.6
Private_Dirty:         0 kB
7f0000002000-7f0000003000 r--p 00000000 fe:00 2 /other/bin/skiff
Private_Dirty:         0 kB
`
	got := cleanMappings(strings.NewReader(smaps), "/bin/skiff")
	if !slices.Equal(got, []mapping{{0x400000, 0x1400000}, {0x1400000, 0x2400000}}) {
		t.Errorf("%x", got)
	}
}

// TestUnmapProgram: the program still works after its pages were dropped.
func TestUnmapProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.Open("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	if len(cleanMappings(maps, self)) == 0 {
		t.Error("no mapping of the program was found")
	}
	for range 10 {
		unmapProgram()
		TestCleanMappings(t)
	}
}
