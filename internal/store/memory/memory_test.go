package memory_test

import (
	"testing"

	"skiff/internal/store"
	"skiff/internal/store/memory"
	"skiff/internal/store/storetest"
)

func open(*testing.T) store.Store { return memory.New(memory.Options{}) }

func TestContract(t *testing.T) { storetest.Run(t, open) }
