package overlay

import "testing"

// TestCloseFailedWatcher: Overlay.loop closes its watcher when it returns, also when watching again has failed and there is none.
func TestCloseFailedWatcher(t *testing.T) {
	var w *linkWatcher
	w.close()
}
