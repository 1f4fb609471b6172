package events

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog/catalogtest"
)

func TestStories(t *testing.T) { catalogtest.Run(t, Resources(), catalogtest.Options{}) }

// The conversion between the two forms keeps all fields.
func TestConversion(t *testing.T) {
	now := time.Unix(1700000000, 1000)
	e := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Name: "e", Namespace: "n", Labels: map[string]string{"a": "b"}},
		InvolvedObject:      corev1.ObjectReference{Kind: "Pod", Name: "p"},
		Reason:              "Reason",
		Message:             "message",
		Source:              corev1.EventSource{Component: "c", Host: "h"},
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now.Add(1)),
		Count:               2,
		Type:                "Normal",
		EventTime:           metav1.NewMicroTime(now.Add(2)),
		Series:              &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(now.Add(3))},
		Action:              "Action",
		Related:             &corev1.ObjectReference{Kind: "Node"},
		ReportingController: "controller",
		ReportingInstance:   "instance",
	}
	for i, v := 0, reflect.ValueOf(*e); i < v.NumField(); i++ {
		if name := v.Type().Field(i).Name; name != "TypeMeta" && v.Field(i).IsZero() {
			t.Errorf("the test does not set %s", name)
		}
	}
	if back := toStored(fromStored(e)); !reflect.DeepEqual(back, e) {
		t.Errorf("%+v became %+v", e, back)
	}
}
