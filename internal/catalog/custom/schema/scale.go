package schema

import (
	"fmt"
	"math"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ScalePaths are where in an object the scale subresource finds its values.
type ScalePaths struct {
	specPath string // as the definition writes it

	spec, status, selector []string
}

// NewScalePaths returns the paths of a scale subresource.
func NewScalePaths(scale *apiextensionsv1.CustomResourceSubresourceScale) *ScalePaths {
	p := &ScalePaths{specPath: scale.SpecReplicasPath, spec: splitPath(scale.SpecReplicasPath), status: splitPath(scale.StatusReplicasPath)}
	if scale.LabelSelectorPath != nil && *scale.LabelSelectorPath != "" {
		p.selector = splitPath(*scale.LabelSelectorPath)
	}
	return p
}

// Scale returns spec and status of an object's Scale, without metadata, and whether the object has replicas. It fails if a value on a path
// has another type; clients are told so with an internal error on reads.
func (p *ScalePaths) Scale(obj map[string]any) (scale *autoscalingv1.Scale, found bool, err error) {
	replicas, found, err := unstructured.NestedInt64(obj, p.spec...)
	if err != nil {
		return nil, false, err
	}
	ready, _, err := unstructured.NestedInt64(obj, p.status...)
	if err != nil {
		return nil, false, err
	}
	selector := ""
	if p.selector != nil {
		if selector, _, err = unstructured.NestedString(obj, p.selector...); err != nil {
			return nil, false, err
		}
	}
	scale = &autoscalingv1.Scale{}
	scale.Kind, scale.APIVersion = "Scale", "autoscaling/v1"
	scale.Spec.Replicas = int32(replicas)
	scale.Status.Replicas = int32(ready)
	scale.Status.Selector = selector
	return scale, found, nil
}

// SetReplicas sets the replicas of an object. It fails if something on the path is not an object.
func (p *ScalePaths) SetReplicas(obj map[string]any, replicas int32) error {
	return unstructured.SetNestedField(obj, int64(replicas), p.spec...)
}

// Replicas returns the names on the path to the replicas, for managed fields.
func (p *ScalePaths) Replicas() []string { return p.spec }

// ErrMissing is the internal error of a read of an object without replicas.
func (p *ScalePaths) ErrMissing() error {
	return fmt.Errorf("the spec replicas field %q does not exist", p.specPath)
}

// ErrEmpty is the bad request of an update that sets no replicas.
func (p *ScalePaths) ErrEmpty() error {
	return fmt.Errorf("the spec replicas field %q cannot be empty", p.specPath)
}

// ValidateScale returns why the values on the paths of a scale subresource must not be stored. It is part of Validate and ValidateUpdate;
// ValidateStatusUpdate leaves out the replicas of the spec.
func ValidateScale(scale *apiextensionsv1.CustomResourceSubresourceScale, obj map[string]any) field.ErrorList {
	return append(validateReplicas(scale.SpecReplicasPath, obj), validateScaleStatus(scale, obj)...)
}

func (ch *change) validateScale(scale *apiextensionsv1.CustomResourceSubresourceScale) field.ErrorList {
	switch {
	case scale == nil:
		return nil
	case ch.status:
		return validateScaleStatus(scale, ch.obj)
	}
	return ValidateScale(scale, ch.obj)
}

func validateScaleStatus(scale *apiextensionsv1.CustomResourceSubresourceScale, obj map[string]any) field.ErrorList {
	errs := validateReplicas(scale.StatusReplicasPath, obj)
	if scale.LabelSelectorPath != nil {
		selector, _, err := unstructured.NestedString(obj, splitPath(*scale.LabelSelectorPath)...)
		if err != nil {
			errs = append(errs, field.Invalid(field.NewPath(*scale.LabelSelectorPath), selector, err.Error()))
		}
	}
	return errs
}

func validateReplicas(path string, obj map[string]any) field.ErrorList {
	replicas, _, err := unstructured.NestedInt64(obj, splitPath(path)...)
	detail := ""
	switch {
	case err != nil:
		detail = err.Error()
	case replicas < 0:
		detail = "should be a non-negative integer"
	case replicas > math.MaxInt32:
		detail = fmt.Sprintf("should be less than or equal to %v", math.MaxInt32)
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath(path), replicas, detail)}
}

// splitPath returns the names on a path such as ".spec.replicas".
func splitPath(path string) []string {
	return strings.Split(strings.TrimPrefix(path, "."), ".")
}
