package kubelet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// loopMonitor notes when the relist loop last ran. That loop comes to a halt when the runtime, or the kubelet itself, hangs.
type loopMonitor struct{ last atomic.Int64 }

// maxLoopInterval is how long one round of the loop may take before the kubelet is unhealthy.
const maxLoopInterval = 5 * time.Minute

// mark notes that the loop runs.
func (m *loopMonitor) mark() { m.last.Store(time.Now().UnixNano()) }

// Healthy returns why the kubelet is unhealthy, nil if it is healthy. One that has not started yet is healthy.
func (k *Kubelet) Healthy(context.Context) error { return k.relistMonitor.check(time.Now()) }

func (m *loopMonitor) check(now time.Time) error {
	if last := m.last.Load(); last != 0 && now.Sub(time.Unix(0, last)) > maxLoopInterval {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}
