package storageversionmigrator

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

// In stories a ConfigMap "discovered" stands for what looking up the resource found, and a ConfigMap "progress" for how far writing its objects got.
func TestStories(t *testing.T) {
	stories.Run(t, func(deps controller.Deps) controller.Loop {
		migrations, maps := deps.Informers.Storagemigration().V1().StorageVersionMigrations().Lister(), deps.Informers.Core().V1().ConfigMaps().Lister()
		return controller.Loop{Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			decision := decide(ofResource(migrations, key), now)
			for _, m := range ofResource(migrations, key) {
				if !isRunning(m) {
					continue
				}
				if cm, err := maps.ConfigMaps("default").Get("discovered"); err == nil {
					return answered(decision, begin(m, targetOf(cm.Data), nil, now))
				}
				if cm, err := maps.ConfigMaps("default").Get("progress"); err == nil {
					return answered(decision, proceed(m, progressOf(cm.Data), nil, now))
				}
			}
			return decision
		}}
	}, stories.Options{Show: conditions})
}

// answered returns a decision whose actions are followed by another decision.
func answered(first, then controller.Decision) controller.Decision {
	return controller.Decision{Actions: first.Actions, Then: func(error) controller.Decision { return then }}
}

func targetOf(data map[string]string) target {
	t := target{resourceVersion: data["resourceVersion"]}
	if data["served"] == "false" {
		return t
	}
	t.resource, t.verbs = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, metav1.Verbs{"get", "list", "patch", "update"}
	if data["verbs"] != "" {
		t.verbs = metav1.Verbs{data["verbs"]}
	}
	return t
}

func progressOf(data map[string]string) progress {
	p := progress{served: data["served"] != "false", outdated: data["outdated"] == "true"}
	p.total, _ = strconv.Atoi(data["total"])
	p.left, _ = strconv.Atoi(data["left"])
	switch message := data["error"]; {
	case message == "":
	case data["retry"] == "later":
		p.err = apierrors.NewTooManyRequests(message, 7)
	case data["retry"] == "yes":
		p.err = apierrors.NewInternalError(errors.New(message))
	default:
		p.err = errors.New(message)
	}
	return p
}

// conditions prints a migration's status, a line for each condition.
func conditions(a controller.Action) string {
	_, _, obj, ok := controller.Written(a)
	if !ok {
		return ""
	}
	status, lines := obj.(*migration).Status, ""
	if status.ResourceVersion != "" {
		lines = "resourceVersion " + status.ResourceVersion + "\n"
	}
	for _, c := range status.Conditions {
		lines += fmt.Sprintf("%s %s since %v, %s: %s\n", c.Type, c.Status, c.LastTransitionTime.Sub(stories.Epoch), c.Reason, c.Message)
	}
	return lines
}
