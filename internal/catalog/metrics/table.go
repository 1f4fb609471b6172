package metrics

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/catalog"
)

// Columns returns the columns of a table of objects: one for each resource that the first of them uses. Without objects there are none.
func Columns(objs []catalog.Object) []metav1.TableColumnDefinition {
	if len(objs) == 0 {
		return nil
	}
	columns := []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: "Name of the resource"}}
	for _, name := range resourceNames(objs) {
		columns = append(columns, metav1.TableColumnDefinition{Name: string(name), Type: "string", Format: "quantity"})
	}
	return append(columns, metav1.TableColumnDefinition{Name: "Window", Type: "string", Format: "duration"})
}

// Rows returns the cells of the objects, in the order of Columns.
func Rows(objs []catalog.Object) [][]any {
	names := resourceNames(objs)
	rows := make([][]any, len(objs))
	for i, obj := range objs {
		usage := Usage(obj)
		row := []any{obj.GetName()}
		for _, name := range names {
			quantity := usage[name]
			row = append(row, quantity.String())
		}
		rows[i] = append(row, window(obj).Duration.String())
	}
	return rows
}

func resourceNames(objs []catalog.Object) []corev1.ResourceName {
	if len(objs) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(Usage(objs[0])))
}

func window(obj catalog.Object) metav1.Duration {
	if m, ok := obj.(*metricsv1beta1.NodeMetrics); ok {
		return m.Window
	}
	return obj.(*metricsv1beta1.PodMetrics).Window
}
