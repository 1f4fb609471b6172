package nonsense

import (
	"bytes"
	"testing"
)

const document = `{"a":{"b":[1,"two",{"c":null}]},"d":"text","e":12345678901234567890}`

// TestJSON: the same seed gives the same document, most seeds give another one, and none gives a large one.
func TestJSON(t *testing.T) {
	different := map[string]bool{}
	for seed := range uint64(2000) {
		first, again := New(seed).JSON(document), New(seed).JSON(document)
		if !bytes.Equal(first, again) {
			t.Fatalf("seed %d gives\n%s\nand\n%s", seed, first, again)
		}
		if len(first) > 1<<20 {
			t.Errorf("seed %d gives %d bytes", seed, len(first))
		}
		different[string(first)] = true
	}
	if len(different) < 1500 {
		t.Errorf("2000 seeds give %d documents", len(different))
	}
}
