package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

const (
	group   = "flowcontrol.apiserver.k8s.io"
	version = "v1"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration {
	return []catalog.Declaration{FlowSchema, PriorityLevelConfiguration}
}

// keepMeta restores all metadata that a status update could change, except managed fields, which record the update itself.
func keepMeta(new, old *metav1.ObjectMeta) {
	managed := new.ManagedFields
	*new = *old
	new.ManagedFields = managed
}

func checkConditions[C any](at *check.Part, conditions []C, typeOf func(*C) string) {
	seen := make(map[string]struct{}, len(conditions))
	for i := range conditions {
		kind := typeOf(&conditions[i])
		if _, again := seen[kind]; again {
			at.Add(field.Duplicate(at.Path("conditions").Index(i).Child("type"), kind))
		}
		seen[kind] = struct{}{}
		at.Item("conditions", i).Present("type", kind != "", "")
	}
}

func schemaCondition(c *flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) }

func levelCondition(c *flowcontrolv1.PriorityLevelConfigurationCondition) string {
	return string(c.Type)
}
