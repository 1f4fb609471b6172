package expand

import (
	"testing"

	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) { stories.Run(t, New, stories.Options{}) }
