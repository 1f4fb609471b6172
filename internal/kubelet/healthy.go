package kubelet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// heart beats with the loop that comes to a halt when the runtime, or the kubelet itself, does.
type heart struct{ last atomic.Int64 }

// longestBeat is how long that loop may take before something is wrong.
const longestBeat = 5 * time.Minute

func (h *heart) beat() { h.last.Store(time.Now().UnixNano()) }

// Healthy says what is wrong with the kubelet, if anything is. One that has not begun is well.
func (k *Kubelet) Healthy(context.Context) error { return k.heart.check(time.Now()) }

func (h *heart) check(now time.Time) error {
	if last := h.last.Load(); last != 0 && now.Sub(time.Unix(0, last)) > longestBeat {
		return errors.New("sync Loop took longer than expected")
	}
	return nil
}
