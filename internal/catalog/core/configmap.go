package core

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
)

var ConfigMap = catalog.Resource[corev1.ConfigMap]{
	Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Short: []string{"cm"}, Namespaced: true,
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Validate:            validateConfigMap,
	ValidateUpdate:      validateConfigMapUpdate,
	Columns: []catalog.Column[corev1.ConfigMap]{
		catalog.NameColumn[corev1.ConfigMap](),
		{Name: "Data", Description: corev1.ConfigMap{}.SwaggerDoc()["data"],
			Cell: func(c *corev1.ConfigMap, _ time.Time) any { return int64(len(c.Data) + len(c.BinaryData)) }},
		catalog.AgeColumn[corev1.ConfigMap](),
	},
	Complete: true,
}

func validateConfigMap(c *corev1.ConfigMap) field.ErrorList {
	errs, size := validateData("data", c.Data)
	for key := range c.Data {
		if _, also := c.BinaryData[key]; also {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, "duplicate of key present in binaryData"))
		}
	}
	sortByField(errs)
	binaryErrs, binarySize := validateData("binaryData", c.BinaryData)
	errs = append(errs, binaryErrs...)
	if size+binarySize > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", corev1.MaxSecretSize))
	}
	return errs
}

func validateConfigMapUpdate(new, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if isTrue(old.Immutable) {
		errs = append(errs, immutable("immutable", isTrue(new.Immutable))...)
		errs = append(errs, immutable("data", maps.Equal(new.Data, old.Data))...)
		errs = append(errs, immutable("binaryData", maps.EqualFunc(new.BinaryData, old.BinaryData, bytes.Equal))...)
	}
	return append(errs, validateConfigMap(new)...)
}

// validateData validates the keys of a config map or a secret and returns the size of its values. Errors are sorted by key.
func validateData[V string | []byte](name string, data map[string]V) (errs field.ErrorList, size int) {
	for key, value := range data {
		for _, msg := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath(name).Key(key), key, msg))
		}
		size += len(value)
	}
	sortByField(errs)
	return errs, size
}

// immutable refuses a change to a part of an object that was declared immutable.
func immutable(name string, kept bool) field.ErrorList {
	if kept {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set")}
}

// sortByField sorts errors that were found by iterating over a map, so that their order is stable.
func sortByField(errs field.ErrorList) {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
}

func isTrue(b *bool) bool { return b != nil && *b }
