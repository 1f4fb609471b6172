package certificates

import (
	"testing"

	"skiff/internal/controller/stories"
)

func TestPodCleanerStories(t *testing.T) { stories.Run(t, NewPodCleaner, stories.Options{}) }
