package quantity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Nonnegative refuses an amount below zero.
func Nonnegative(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() < 0 {
		return field.ErrorList{field.Invalid(path, q.String(), validation.IsNegativeErrorMsg)}
	}
	return nil
}

// Positive refuses zero and less.
func Positive(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// ForResource refuses amounts that a resource cannot have: negative ones, and fractions of an integer resource.
func ForResource(name string, q resource.Quantity, path *field.Path) field.ErrorList {
	errs := Nonnegative(q, path)
	if q.MilliValue()%1000 != 0 && IsInteger(corev1.ResourceName(name)) {
		errs = append(errs, field.Invalid(path, q, "must be an integer"))
	}
	return errs
}

// HugePageSize returns the page size in a resource name; ok is false if there is none.
func HugePageSize(name corev1.ResourceName) (size resource.Quantity, ok bool) {
	text, found := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix)
	if !found {
		return size, false
	}
	size, err := resource.ParseQuantity(text)
	return size, err == nil
}

// WholeHugePages reports whether the amount is a multiple of the page size in the name.
func WholeHugePages(name corev1.ResourceName, q resource.Quantity) bool {
	size, ok := HugePageSize(name)
	return ok && size.Sign() > 0 && size.MilliValue()%1000 == 0 && q.Value()%size.Value() == 0
}

// RoundUp rounds the amounts of a list up to thousandths, the finest the API keeps. Every list is rounded when it is read.
func RoundUp(list corev1.ResourceList) {
	for name, q := range list {
		if q.RoundUp(resource.Milli) {
			continue
		}
		list[name] = q
	}
}

// SortedNames returns the names of a list in order, so that errors come in the same order each time. It appends to
// buf, which a caller may keep on its stack.
func SortedNames(list corev1.ResourceList, buf []corev1.ResourceName) []corev1.ResourceName {
	buf = buf[:0]
	for name := range list {
		buf = append(buf, name)
	}
	slices.Sort(buf)
	return buf
}
