package scheduler

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// assumeCache holds the objects that an informer has observed, and over them those that are assumed: changed by the scheduler, but not observed so yet. An
// assumed object counts only while the observed one is of the version that it was made from.
type assumeCache[T metav1.Object] struct {
	observed cache.Indexer
	mu       sync.RWMutex
	assumed  map[string]T
}

// get returns an object; the zero value if it does not exist.
func (c *assumeCache[T]) get(key string) T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	obj, ok := c.getObserved(key)
	if !ok {
		return obj
	}
	return c.over(key, obj)
}

// getObserved returns an object as the informer has observed it.
func (c *assumeCache[T]) getObserved(key string) (obj T, ok bool) {
	if o, exists, err := c.observed.GetByKey(key); err == nil && exists {
		obj, ok = o.(T)
	}
	return obj, ok
}

// over returns the object assumed over an observed one, if there is one.
func (c *assumeCache[T]) over(key string, obj T) T {
	if assumed, ok := c.assumed[key]; ok && assumed.GetResourceVersion() == obj.GetResourceVersion() {
		return assumed
	}
	return obj
}

// byIndex returns objects of an index. What is assumed does not change the index.
func (c *assumeCache[T]) byIndex(index, value string) []T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list, err := c.observed.ByIndex(index, value)
	if err != nil {
		return nil
	}
	out := make([]T, 0, len(list))
	for _, o := range list {
		if obj, ok := o.(T); ok {
			out = append(out, c.over(keyOf(obj), obj))
		}
	}
	return out
}

// assume puts a changed object over the observed one, which must be of the same version.
func (c *assumeCache[T]) assume(obj T) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOf(obj)
	observed, ok := c.getObserved(key)
	if !ok {
		return fmt.Errorf("%q does not exist any more", key)
	}
	if observed.GetResourceVersion() != obj.GetResourceVersion() {
		return fmt.Errorf("%q is out of sync (stored: %s, assume: %s)", key, observed.GetResourceVersion(), obj.GetResourceVersion())
	}
	if c.assumed == nil {
		c.assumed = map[string]T{}
	}
	c.assumed[key] = obj
	return nil
}

// restore drops an assumed object.
func (c *assumeCache[T]) restore(obj T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := keyOf(obj)
	if assumed, ok := c.assumed[key]; ok && metav1.Object(assumed) == metav1.Object(obj) {
		delete(c.assumed, key)
	}
}

// expire drops what is assumed of an object if that was observed in another version.
func (c *assumeCache[T]) expire(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if assumed, ok := c.assumed[key]; ok {
		if observed, exists := c.getObserved(key); !exists || observed.GetResourceVersion() != assumed.GetResourceVersion() {
			delete(c.assumed, key)
		}
	}
}

func keyOf(obj metav1.Object) string { return cache.MetaObjectToName(obj).String() }
