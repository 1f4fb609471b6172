package certificates

import (
	"testing"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Run(t, Resources(), catalogtest.Options{
		// Set by the server, from the time of day.
		Ignore: []string{"status.conditions.lastUpdateTime", "status.conditions.lastTransitionTime"},
	})
}
