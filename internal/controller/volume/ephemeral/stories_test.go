package ephemeral

import (
	"testing"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Show: func(a controller.Action) string {
		if verb, _, obj, ok := controller.Written(a); ok && verb == "create" {
			return stories.YAML(obj, "metadata") + stories.YAML(obj, "spec")
		}
		return ""
	}})
}
