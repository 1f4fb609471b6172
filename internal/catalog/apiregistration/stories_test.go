package apiregistration

import (
	"testing"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) {
	catalogtest.Run(t, Resources(), catalogtest.Options{Ignore: []string{
		"status.conditions.lastTransitionTime", // of the condition that the server sets
	}})
}
