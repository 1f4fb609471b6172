package core

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/catalog"
)

// ComponentStatus is served by the API server itself, which knows the health of its components.
var ComponentStatus = catalog.Resource[corev1.ComponentStatus]{
	Version: "v1", Kind: "ComponentStatus", Plural: "componentstatuses", Short: []string{"cs"},
	Verbs: []string{"get", "list"}, Virtual: true,
	Deprecated: "v1 ComponentStatus is deprecated in v1.19+",
	Columns: []catalog.Column[corev1.ComponentStatus]{
		catalog.NameColumn[corev1.ComponentStatus](),
		{Name: "Status", Description: "Status of the component conditions", Cell: componentHealth},
		{Name: "Message", Description: "Message of the component conditions",
			Cell: func(c *corev1.ComponentStatus, _ time.Time) any { return healthy(c).Message }},
		{Name: "Error", Description: "Error of the component conditions",
			Cell: func(c *corev1.ComponentStatus, _ time.Time) any { return healthy(c).Error }},
	},
	Complete: true,
}

// healthy returns the component's Healthy condition, empty if it has none.
func healthy(c *corev1.ComponentStatus) corev1.ComponentCondition {
	for _, condition := range c.Conditions {
		if condition.Type == corev1.ComponentHealthy {
			return condition
		}
	}
	return corev1.ComponentCondition{}
}

func componentHealth(c *corev1.ComponentStatus, _ time.Time) any {
	switch condition := healthy(c); {
	case condition.Type == "":
		return "Unknown"
	case condition.Status == corev1.ConditionTrue:
		return "Healthy"
	}
	return "Unhealthy"
}
