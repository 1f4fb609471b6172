package machine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestRootLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files       map[string]string
		limit, used int64
		ok          bool
	}{
		"nothing":                     {},
		"version 1 without a limit":   {files: map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "5\n", "memory/memory.stat": ""}},
		"version 1":                   {map[string]string{"memory/memory.limit_in_bytes": "1000\n", "memory/memory.usage_in_bytes": "500\n", "memory/memory.stat": "cache 1\ntotal_inactive_file 200\n"}, 1000, 300, true},
		"version 2 without a limit":   {files: map[string]string{"memory.max": "max\n", "memory.current": "5\n", "memory.stat": ""}},
		"version 2":                   {map[string]string{"memory.max": "1000\n", "memory.current": "500\n", "memory.stat": "anon 1\ninactive_file 600\n"}, 1000, 0, true},
		"version 2, as a machine has": {files: map[string]string{"memory.stat": "anon 1\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range c.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if limit, used, ok := rootLimit(dir); limit != c.limit || used != c.used || ok != c.ok {
				t.Errorf("limit %d, used %d, %v; want %d, %d, %v", limit, used, ok, c.limit, c.used, c.ok)
			}
		})
	}
}
