package apiextensions

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
)

// setCondition adds or replaces a condition. Its time changes with its status only.
func setCondition(d *definition, c condition, now metav1.Time) {
	c.LastTransitionTime = now
	old := apihelpers.FindCRDCondition(d, c.Type)
	if old == nil {
		d.Status.Conditions = append(d.Status.Conditions, c)
		return
	}
	if old.Status == c.Status && !old.LastTransitionTime.IsZero() {
		c.LastTransitionTime = old.LastTransitionTime
	}
	c.ObservedGeneration = old.ObservedGeneration
	*old = c
}

func removeCondition(d *definition, t apiextensionsv1.CustomResourceDefinitionConditionType) {
	d.Status.Conditions = slices.DeleteFunc(d.Status.Conditions, func(c condition) bool { return c.Type == t })
}

func aggregate(errs []error) string { return utilerrors.NewAggregate(errs).Error() }
