package podlogs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A log that a container wrote quickly may be larger than maxSize: what does not fit into maxFiles*maxSize is removed, oldest first, and not compressed.
func TestTrimBySize(t *testing.T) {
	for name, test := range map[string]struct {
		sizes []int64 // the sizes of the rotated files, oldest first
		want  []string
	}{
		"small ones stay":          {[]int64{10, 10, 10}, []string{"0.log.1.gz", "0.log.2.gz", "0.log.3.gz"}},
		"too many":                 {[]int64{10, 10, 10, 10}, []string{"0.log.2.gz", "0.log.3.gz", "0.log.4.gz"}},
		"a large one goes":         {[]int64{100 * maxSize, 10, 10}, []string{"0.log.2.gz", "0.log.3.gz"}},
		"so do those before it":    {[]int64{10, 10, 100 * maxSize}, nil},
		"together they fit":        {[]int64{2 * maxSize, 2 * maxSize}, []string{"0.log.1.gz", "0.log.2.gz"}},
		"together they do not fit": {[]int64{3 * maxSize, 2*maxSize + 1}, []string{"0.log.2.gz"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "0.log")
			for i, size := range test.sizes {
				rotated := path + "." + string(rune('1'+i))
				if err := os.WriteFile(rotated, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Truncate(rotated, size); err != nil {
					t.Fatal(err)
				}
			}
			if err := trim(path, maxFiles-2); err != nil {
				t.Fatal(err)
			}
			var left []string
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if !slices.Equal(left, test.want) {
				t.Errorf("left are %q, want %q", left, test.want)
			}
		})
	}
}
