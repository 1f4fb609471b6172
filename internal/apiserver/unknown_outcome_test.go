package apiserver_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

// lossy is a store that does one write of a key and then answers with an error that leaves its outcome unknown.
type lossy struct {
	store.Store
	mu       sync.Mutex
	verb     string // "put" or "delete": the write whose answer is lost
	key      string
	namesake []byte // stored under the key after the write, if not nil: another client created the object again
	writes   int    // of the key since the answer was lost, that one included
}

var errAnswerLost = errors.New("request timed out")

// lose makes the answer to the next write of key get lost.
func (l *lossy) lose(verb, key string, namesake []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verb, l.key, l.namesake, l.writes = verb, key, namesake, 0
}

func (l *lossy) wrote() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

// finish is called after a write of key, and returns the error to answer with.
func (l *lossy) finish(verb, key string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil || key != l.key || l.writes == 0 && verb != l.verb {
		return err
	}
	l.writes++
	if l.writes > 1 {
		return nil
	}
	if l.namesake != nil {
		if _, err := l.Store.Put(context.Background(), key, l.namesake, store.PutOptions{}); err != nil {
			return err
		}
	}
	return errAnswerLost
}

func (l *lossy) Put(ctx context.Context, key string, value []byte, opts store.PutOptions) (int64, error) {
	revision, err := l.Store.Put(ctx, key, value, opts)
	return revision, l.finish("put", key, err)
}

func (l *lossy) Delete(ctx context.Context, key string, ifRevision int64) (int64, error) {
	revision, err := l.Store.Delete(ctx, key, ifRevision)
	return revision, l.finish("delete", key, err)
}

// TestUnknownOutcome: a write whose outcome is unknown is answered with 504, without Retry-After (client-go would repeat it), and is
// made once; an object of the same name that was created since is left alone.
func TestUnknownOutcome(t *testing.T) {
	kept := &lossy{Store: memory.New(memory.Options{})}
	s := start(t, func(o *apiserver.Options) { o.Store = kept })
	configMap := func(name string, finalizers ...string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name, "finalizers": finalizers}, "data": map[string]string{"k": "1"}}
	}
	pod := func(name string) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"nodeName": "n", "containers": []any{map[string]any{"name": "c", "image": "i"}}}}
	}
	mapKey := func(name string) string { return "/registry/configmaps/default/" + name }
	podKey := func(name string) string { return "/registry/pods/default/" + name }
	stored := func(key string) []byte {
		kv, _, err := kept.Get(t.Context(), key)
		if err != nil {
			return nil
		}
		return kv.Value
	}
	check := func(t *testing.T, what string, a answer) {
		t.Helper()
		a.t = t
		a.refused(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		if after := a.Header.Get("Retry-After"); after != "" {
			t.Errorf("%s is answered with Retry-After: %s", what, after)
		}
		if n := kept.wrote(); n != 1 {
			t.Errorf("%s wrote %d times", what, n)
		}
	}

	t.Run("create", func(t *testing.T) {
		kept.lose("put", mapKey("created"), nil)
		check(t, "create", s.send("POST", inNamespace("configmaps"), configMap("created")))
	})
	t.Run("update", func(t *testing.T) {
		s.send("POST", inNamespace("configmaps"), configMap("updated")).ok()
		kept.lose("put", mapKey("updated"), nil)
		changed := configMap("updated")
		changed["data"] = map[string]string{"k": "2"}
		check(t, "update", s.send("PUT", inNamespace("configmaps", "updated"), changed))
	})
	t.Run("delete", func(t *testing.T) {
		s.send("POST", inNamespace("configmaps"), configMap("deleted")).ok()
		kept.lose("delete", mapKey("deleted"), nil)
		check(t, "delete", s.send("DELETE", inNamespace("configmaps", "deleted"), nil))
	})
	t.Run("delete and a namesake", func(t *testing.T) {
		s.send("POST", inNamespace("configmaps"), configMap("twice")).ok()
		kept.lose("delete", mapKey("twice"), stored(mapKey("twice")))
		check(t, "delete", s.send("DELETE", inNamespace("configmaps", "twice"), nil))
		if stored(mapKey("twice")) == nil {
			t.Error("the namesake was deleted")
		}
	})
	t.Run("delete of a held object", func(t *testing.T) {
		s.send("POST", inNamespace("configmaps"), configMap("held", "example.com/f")).ok()
		kept.lose("put", mapKey("held"), nil)
		check(t, "delete", s.send("DELETE", inNamespace("configmaps", "held"), nil))
	})
	t.Run("removal of the last finalizer", func(t *testing.T) {
		s.send("POST", inNamespace("configmaps"), configMap("final", "example.com/f")).ok()
		s.send("DELETE", inNamespace("configmaps", "final"), nil).ok()
		kept.lose("delete", mapKey("final"), stored(mapKey("final")))
		check(t, "the update", s.send("PATCH", inNamespace("configmaps", "final"), `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json"))
		if stored(mapKey("final")) == nil {
			t.Error("the namesake was deleted")
		}
	})
	t.Run("delete collection", func(t *testing.T) {
		labelled := configMap("collected")
		labelled["metadata"].(map[string]any)["labels"] = map[string]string{"in": "collection"}
		s.send("POST", inNamespace("configmaps"), labelled).ok()
		kept.lose("delete", mapKey("collected"), stored(mapKey("collected")))
		check(t, "delete collection", s.send("DELETE", inNamespace("configmaps")+"?labelSelector=in%3Dcollection", nil))
		if stored(mapKey("collected")) == nil {
			t.Error("the namesake was deleted")
		}
	})
	t.Run("graceful delete", func(t *testing.T) {
		s.send("POST", inNamespace("pods"), pod("graceful")).ok()
		kept.lose("put", podKey("graceful"), nil)
		check(t, "graceful delete", s.send("DELETE", inNamespace("pods", "graceful"), nil))
	})
	t.Run("forced delete", func(t *testing.T) {
		s.send("POST", inNamespace("pods"), pod("forced")).ok()
		kept.lose("delete", podKey("forced"), stored(podKey("forced")))
		check(t, "forced delete", s.send("DELETE", inNamespace("pods", "forced")+"?gracePeriodSeconds=0", nil))
		if stored(podKey("forced")) == nil {
			t.Error("the namesake was deleted")
		}
	})
	t.Run("eviction", func(t *testing.T) {
		s.send("POST", inNamespace("pods"), pod("evicted")).ok()
		kept.lose("put", podKey("evicted"), nil)
		check(t, "eviction", s.send("POST", inNamespace("pods", "evicted", "eviction"), map[string]any{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": map[string]any{"name": "evicted"}}))
	})
}
