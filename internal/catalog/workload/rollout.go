package workload

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// IntOrPercent adds an error if a value is neither a number of pods nor a percentage.
func IntOrPercent(p *check.Part, name string, v intstr.IntOrString) {
	if v.Type == intstr.Int {
		p.NonNegative(name, int64(v.IntVal))
		return
	}
	for _, msg := range validation.IsValidPercent(v.StrVal) {
		p.Invalid(name, v, msg)
	}
}

// AtMostAll adds an error if a percentage is above 100%.
func AtMostAll(p *check.Part, name string, v intstr.IntOrString) {
	if percent, ok := percentage(v); ok && percent > 100 {
		p.Invalid(name, v, "must not be greater than 100%")
	}
}

// Amount returns the number in a value, of pods or of percent: callers only compare it with zero.
func Amount(v intstr.IntOrString) int {
	if percent, ok := percentage(v); ok {
		return percent
	}
	return v.IntValue()
}

func percentage(v intstr.IntOrString) (int, bool) {
	if v.Type != intstr.String || len(validation.IsValidPercent(v.StrVal)) > 0 {
		return 0, false
	}
	percent, _ := strconv.Atoi(strings.TrimSuffix(v.StrVal, "%"))
	return percent, true
}

// Kept adds an error if a count decreased or was removed. It must only grow, so that names are unique.
func Kept(p *check.Part, name string, new, old *int32) {
	if old == nil || new != nil && *new >= *old {
		return
	}
	value := int32(0)
	if new != nil {
		value = *new
	}
	p.Add(field.Invalid(p.Path(name), value, "cannot be decremented"))
}

func printed(msgs []string) string { return fmt.Sprint(msgs) }
