package persistentvolume

import (
	"sync"

	"skiff/internal/controller"
)

// waiting holds the claims for which no volume was found, by class, so that a volume that becomes available wakes those and no others. A claim is added
// before volumes are looked through: one that becomes available meanwhile is either found, or wakes the claim.
type waiting struct {
	mu      sync.Mutex
	byClass map[string]map[controller.Key]struct{}
	classes map[controller.Key]string
}

func (w *waiting) add(claim controller.Key, class string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.classes == nil {
		w.byClass, w.classes = map[string]map[controller.Key]struct{}{}, map[controller.Key]string{}
	}
	if w.byClass[class] == nil {
		w.byClass[class] = map[controller.Key]struct{}{}
	}
	w.byClass[class][claim], w.classes[claim] = struct{}{}, class
}

func (w *waiting) remove(claim controller.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.removeLocked(claim)
}

func (w *waiting) removeLocked(claim controller.Key) {
	class, ok := w.classes[claim]
	if !ok {
		return
	}
	delete(w.classes, claim)
	if delete(w.byClass[class], claim); len(w.byClass[class]) == 0 {
		delete(w.byClass, class)
	}
}

// take removes at most limit claims of a class that suit, and returns them.
func (w *waiting) take(class string, limit int, suits func(controller.Key) bool) (claims []controller.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for claim := range w.byClass[class] {
		if len(claims) == limit {
			break
		}
		if suits(claim) {
			w.removeLocked(claim)
			claims = append(claims, claim)
		}
	}
	return claims
}
