package storageversionmigrator

import (
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReleased: the stored versions of a definition become the storage version after a success, unless its spec changed during the migration.
func TestReleased(t *testing.T) {
	for _, c := range []struct {
		name            string
		marked          int64
		succeeded       bool
		reason, message string
		stored          []string
	}{
		{"succeeded", 3, true, "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated", []string{"v2"}},
		{"changed", 2, true, "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch", nil},
		{"failed", 3, false, "MigrationFailed", "The migration has failed", nil},
	} {
		d := &definition{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2", Storage: true}}}}
		d.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, ObservedGeneration: 3},
			{Type: apiextensionsv1.StorageMigrating, Status: apiextensionsv1.ConditionTrue, ObservedGeneration: c.marked}}
		if c.name == "changed" {
			d.Status.Conditions = d.Status.Conditions[1:]
		}
		status := released(d, c.succeeded, time.Unix(1, 0))
		got := status.Conditions[0]
		if got.Reason != c.reason || got.Message != c.message || got.Status != apiextensionsv1.ConditionFalse || got.ObservedGeneration != 3 || !slices.Equal(status.StoredVersions, c.stored) {
			t.Errorf("%s: %+v", c.name, status)
		}
	}
}
