package resourceclaim

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

// What the API has besides the caches is told by ConfigMaps: "pods" with the uids of pods by name, and "claims" with names.
func TestStories(t *testing.T) {
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		l := newLoop(deps)
		data := func(name string) map[string]string {
			if m, err := deps.Informers.Core().V1().ConfigMaps().Lister().ConfigMaps("default").Get(name); err == nil {
				return m.Data
			}
			return nil
		}
		readPod, readClaim := l.readPod, l.readClaim
		l.readPod = func(q *podQuery) controller.Action {
			if uid, ok := data("pods")[q.consumer.Name]; ok {
				q.found = &corev1.Pod{}
				q.found.UID = types.UID(uid)
			}
			return controller.Call(readPod(q).String(), nil)
		}
		l.readClaim = func(q *claimQuery) controller.Action {
			_, q.found = data("claims")[q.name]
			return controller.Call(readClaim(q).String(), nil)
		}
		return controller.Loop{Reconcile: l.reconcile}
	}, stories.Options{Show: func(a controller.Action) string {
		if verb, _, obj, ok := controller.Written(a); ok && verb == "create" {
			return stories.YAML(obj, "metadata") + stories.YAML(obj, "spec")
		}
		return ""
	}})
}
