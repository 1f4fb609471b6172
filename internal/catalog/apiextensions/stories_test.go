package apiextensions

import (
	"testing"

	"skiff/internal/catalog/catalogtest"
)

// TestStories leaves out what upstream's loops write into the status between two steps: TestDecide covers that.
func TestStories(t *testing.T) {
	catalogtest.Run(t, Resources(), catalogtest.Options{Ignore: []string{"status.acceptedNames", "status.conditions"}})
}
