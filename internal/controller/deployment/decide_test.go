package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"skiff/internal/controller"
	"skiff/internal/controller/owned"
)

var sets = schema.GroupResource{Group: "apps", Resource: "replicasets"}

// What is done when creating the new ReplicaSet fails depends on the error.
func TestNotCreated(t *testing.T) {
	terminating := apierrors.NewForbidden(sets, "x", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid"}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "v1"}}
	prepare(d)
	mine := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)}}}
	mine.Spec.Template = *d.Spec.Template.DeepCopy()
	anothers := mine.DeepCopy()
	anothers.OwnerReferences[0].UID = "other"
	otherTemplate := mine.DeepCopy()
	otherTemplate.Spec.Template.Spec.Containers[0].Image = "v2"
	exists := apierrors.NewAlreadyExists(sets, "x")
	for _, c := range []struct {
		name       string
		err        error
		there      *appsv1.ReplicaSet
		collisions int32
		events     int
		again      bool
	}{
		{name: "it was created before, by a request whose answer never came", err: exists, there: mine, again: true},
		{name: "somebody created it, and the cache does not know yet", err: exists, again: true},
		{name: "another's", err: exists, there: anothers, collisions: 1, again: true},
		{name: "another template with the same hash", err: exists, there: otherTemplate, collisions: 1, again: true},
		{name: "the namespace is being deleted", err: terminating},
		{name: "the loop is being stopped", err: fmt.Errorf("sending: %w", context.Canceled), again: true},
		{name: "forbidden", err: apierrors.NewForbidden(sets, "x", errors.New("no")), events: 1, again: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := observed{seen: d, pods: func(types.UID) []*corev1.Pod { return nil }, named: func(string) *appsv1.ReplicaSet { return c.there },
				sets: func(labels.Selector, controller.Action) owned.Claims[*appsv1.ReplicaSet] {
					return owned.Claims[*appsv1.ReplicaSet]{}
				}}
			decision := decide(o, time.Now()).Then(c.err)
			events, collisions := 0, int32(0)
			for _, a := range decision.Actions {
				if strings.HasPrefix(a.String(), "event Deployment default/web Warning ReplicaSetCreateError: Failed to create new replica set") {
					events++
				}
				if _, _, obj, ok := controller.Written(a); ok {
					collisions = ptr.Deref(obj.(*appsv1.Deployment).Status.CollisionCount, 0)
				}
			}
			if events != c.events || collisions != c.collisions || (decision.Err != nil) != c.again {
				t.Errorf("%d events, %d collisions, error %v", events, collisions, decision.Err)
			}
		})
	}
}

// After a collision the same template has another name.
func TestTemplateHash(t *testing.T) {
	template := &corev1.PodTemplateSpec{}
	seen := map[string]bool{}
	for _, collisions := range []*int32{nil, ptr.To(int32(0)), ptr.To(int32(1)), ptr.To(int32(256))} {
		hash := templateHash(template, collisions)
		if seen[hash] {
			t.Errorf("%s again", hash)
		}
		seen[hash] = true
	}
}

func TestSetName(t *testing.T) {
	if name := setName("web", "abc"); name != "web-abc" {
		t.Error(name)
	}
	if name := setName(strings.Repeat("x", 253), "abc"); len(name) != 253 || !strings.HasSuffix(name, "x-abc") {
		t.Error(name)
	}
}

// The history annotation is bounded: the oldest revisions are dropped.
func TestExtendHistory(t *testing.T) {
	long := strings.Repeat("1000,", 399) + "9999" // 1999 characters
	for _, c := range []struct{ history, revision, want string }{
		{"", "1", "1"},
		{"1", "3", "1,3"},
		{long, "5", strings.TrimPrefix(long, "1000,") + ",5"},
	} {
		if got, ok := extendHistory(c.history, c.revision); !ok || got != c.want {
			t.Errorf("%.20s and %s: %.20s", c.history, c.revision, got)
		}
	}
	if _, ok := extendHistory("1", strings.Repeat("9", 3000)); ok {
		t.Error("a revision that is longer than the list may be")
	}
}
