package catalog

import (
	"reflect"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

var metaDoc = metav1.ObjectMeta{}.SwaggerDoc()

// NameColumn returns the first column of every table.
func NameColumn[T any]() Column[T] {
	return Column[T]{Name: "Name", Format: "name", Description: metaDoc["name"],
		Cell: func(obj *T, _ time.Time) any { return meta(obj).GetName() }}
}

// AgeColumn returns the column with the time since the object was created.
func AgeColumn[T any]() Column[T] {
	return Column[T]{Name: "Age", Description: metaDoc["creationTimestamp"], Timed: true,
		Age:  func(obj *T) metav1.Time { return meta(obj).GetCreationTimestamp() },
		Cell: func(obj *T, now time.Time) any { return Since(meta(obj).GetCreationTimestamp(), now) }}
}

// Since formats the time since then as kubectl does: "5m", "3d2h", "<unknown>".
func Since(then metav1.Time, now time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then.Time))
}

// SpecChanged reports whether the Spec of two objects differs. It is the usual Resource.Changed.
func SpecChanged[T any](new, old *T) bool {
	return !apiequality.Semantic.DeepEqual(
		reflect.ValueOf(new).Elem().FieldByName("Spec").Interface(),
		reflect.ValueOf(old).Elem().FieldByName("Spec").Interface())
}

func meta[T any](obj *T) metav1.Object { return any(obj).(metav1.Object) }
