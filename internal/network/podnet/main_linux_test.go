package podnet

import (
	"testing"

	"skiff/test/alone"
)

// Forwarding is turned on where the tests run: that is no machine but their own.
func TestMain(m *testing.M) { alone.Main(m) }
