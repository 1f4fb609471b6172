package devicetainteviction

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

// A ConfigMap "planned" has the names of pods that were to be evicted before, a ConfigMap "evicted" how many pods each rule has evicted.
func TestStories(t *testing.T) {
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		l := newLoop(deps)
		maps := deps.Informers.Core().V1().ConfigMaps().Lister().ConfigMaps("default")
		return controller.Loop{Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			if m, err := maps.Get("planned"); err == nil {
				for pod := range m.Data {
					l.plan(controller.Key{Namespace: "default", Name: pod}, types.UID("uid-of-"+pod))
				}
			}
			if m, err := maps.Get("evicted"); err == nil {
				for rule, n := range m.Data {
					l.evicted[types.UID("uid-of-"+rule)] = len(n)
				}
			}
			return l.reconcile(key, now)
		}}
	}, stories.Options{})
}
