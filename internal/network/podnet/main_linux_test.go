package podnet

import (
	"testing"

	"skiff/test/alone"
)

// TestMain runs the tests in namespaces of their own, because they enable IP forwarding.
func TestMain(m *testing.M) { alone.Main(m) }
