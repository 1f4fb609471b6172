package apps

import (
	"encoding/json"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

var ControllerRevision = catalog.Resource[appsv1.ControllerRevision]{
	Group: "apps", Version: "v1", Kind: "ControllerRevision", Plural: "controllerrevisions", Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Validate: func(r *appsv1.ControllerRevision) field.ErrorList {
		p := check.At(nil)
		p.NonNegative("revision", r.Revision)
		validateRevisionData(p, r.Data.Raw)
		return p.Errors()
	},
	ValidateUpdate: func(new, old *appsv1.ControllerRevision) field.ErrorList {
		p := check.At(nil)
		p.NonNegative("revision", new.Revision)
		p.Immutable("data", new.Data, old.Data)
		return p.Errors()
	},
	Columns: []catalog.Column[appsv1.ControllerRevision]{
		catalog.NameColumn[appsv1.ControllerRevision](),
		{Name: "Controller", Description: "Controller of the object",
			Cell: func(r *appsv1.ControllerRevision, _ time.Time) any { return controllerName(r) }},
		{Name: "Revision", Description: appsv1.ControllerRevision{}.SwaggerDoc()["revision"],
			Cell: func(r *appsv1.ControllerRevision, _ time.Time) any { return r.Revision }},
		catalog.AgeColumn[appsv1.ControllerRevision](),
	},
	Complete: true,
}

// validateRevisionData requires data that is an object.
func validateRevisionData(p *check.Part, raw []byte) {
	if raw == nil {
		p.Required("data", "data is mandatory")
		return
	}
	var data any
	if err := json.Unmarshal(raw, &data); err != nil {
		p.Invalid("data", "<value omitted>", "error parsing data: "+err.Error())
		return
	}
	switch data.(type) {
	case map[string]any:
	case nil:
		p.Required("data", "data is mandatory")
	default:
		p.Required("data", "data must be a valid JSON object")
	}
}

func controllerName(r *appsv1.ControllerRevision) string {
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return "<none>"
	}
	gv, err := schema.ParseGroupVersion(owner.APIVersion)
	if err != nil {
		return "<none>"
	}
	return strings.ToLower(gv.WithKind(owner.Kind).GroupKind().String()) + "/" + owner.Name
}
