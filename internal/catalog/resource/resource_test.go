package resource

import (
	"testing"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Run(t, Resources(), catalogtest.Options{Ignore: []string{"spec.taint.timeAdded"}})
}
