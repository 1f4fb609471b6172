package resource

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// DeviceTaintRule declares rules that taint devices in addition to their drivers' taints.
var DeviceTaintRule = catalog.Resource[resourcev1.DeviceTaintRule]{
	Group: group, Version: version, Kind: "DeviceTaintRule", Plural: "devicetaintrules", StorageVersion: "v1beta2",
	Name:    validation.NameIsDNSSubdomain,
	Default: func(r *resourcev1.DeviceTaintRule) { defaultTaint(&r.Spec.Taint) },
	PrepareUpdate: func(new, old *resourcev1.DeviceTaintRule) {
		// A taint with another effect is a new one, unless the client sets timeAdded.
		if n, o := &new.Spec.Taint, &old.Spec.Taint; n.Effect != o.Effect && n.TimeAdded.Equal(o.TimeAdded) {
			n.TimeAdded = thisSecond()
		}
	},
	Changed:        catalog.SpecChanged[resourcev1.DeviceTaintRule],
	Validate:       func(r *resourcev1.DeviceTaintRule) field.ErrorList { return validateRule(r, nil) },
	ValidateUpdate: func(new, old *resourcev1.DeviceTaintRule) field.ErrorList { return validateRule(new, &old.Spec.Taint) },
	Status: &catalog.Edit[resourcev1.DeviceTaintRule]{
		PrepareUpdate: func(new, old *resourcev1.DeviceTaintRule) {
			metav1.ResetObjectMetaForStatus(&new.ObjectMeta, &old.ObjectMeta)
		},
		ValidateUpdate: func(new, _ *resourcev1.DeviceTaintRule) field.ErrorList {
			status := check.At(field.NewPath("status"))
			checkConditions(status, new.Status.Conditions, false)
			return status.Errors()
		},
		ResetFields: []string{"metadata"},
	},
	Columns:  ruleColumns,
	Complete: true,
}

func validateRule(r *resourcev1.DeviceTaintRule, old *resourcev1.DeviceTaint) field.ErrorList {
	spec := at(field.NewPath("spec"))
	if s := r.Spec.DeviceSelector; s != nil {
		p := spec.Part.Child("deviceSelector")
		if s.Driver != nil {
			checkDriver(p, "driver", *s.Driver)
		}
		if s.Pool != nil {
			checkPool(p, "pool", *s.Pool)
		}
		if s.Device != nil {
			p.Format("device", *s.Device, utilvalidation.IsDNS1123Label)
		}
	}
	checkTaint(spec.child("taint"), &r.Spec.Taint, old)
	return spec.errors()
}

// checkConditions validates conditions and their number, in the order that numberFirst selects: upstream has both.
func checkConditions(p *check.Part, conditions []metav1.Condition, numberFirst bool) {
	const limit = resourcev1.DeviceTaintRuleStatusMaxConditions
	if numberFirst {
		tooMany(p, "conditions", conditions, limit)
	}
	if len(conditions) > 0 {
		p.Add(metav1validation.ValidateConditions(conditions, p.Path("conditions"))...)
	}
	if !numberFirst {
		tooMany(p, "conditions", conditions, limit)
	}
}

var taintDoc = resourcev1.DeviceTaint{}.SwaggerDoc()

var ruleColumns = []catalog.Column[resourcev1.DeviceTaintRule]{
	catalog.NameColumn[resourcev1.DeviceTaintRule](),
	{Name: "Key", Description: taintDoc["key"], Cell: func(r *resourcev1.DeviceTaintRule, _ time.Time) any { return r.Spec.Taint.Key }},
	{Name: "Value", Description: taintDoc["value"], Cell: func(r *resourcev1.DeviceTaintRule, _ time.Time) any { return r.Spec.Taint.Value }},
	{Name: "Effect", Description: taintDoc["effect"], Cell: func(r *resourcev1.DeviceTaintRule, _ time.Time) any { return string(r.Spec.Taint.Effect) }},
	{Name: "TimeAdded", Description: taintDoc["timeAdded"], Timed: true, Cell: func(r *resourcev1.DeviceTaintRule, now time.Time) any {
		if r.Spec.Taint.TimeAdded == nil {
			return ""
		}
		return catalog.Since(*r.Spec.Taint.TimeAdded, now)
	}},
	catalog.AgeColumn[resourcev1.DeviceTaintRule](),
}
