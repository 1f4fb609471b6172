package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	dracel "k8s.io/dynamic-resource-allocation/cel"
)

// compilerFeatures are those that are on by default.
var compilerFeatures = dracel.Features{EnableConsumableCapacity: true}

// checkExpression refuses a new CEL expression that is too long or too complex, or that cannot be evaluated for a device.
func checkExpression(p part, expression string) {
	path := p.Path("expression")
	if len(expression) > resourcev1.CELSelectorExpressionMaxLength {
		p.Add(field.TooLong(path, "", resourcev1.CELSelectorExpressionMaxLength))
		return
	}
	mode := environment.NewExpressions
	compiled := dracel.GetCompiler(compilerFeatures).CompileCELExpression(expression, dracel.Options{EnvType: &mode})
	switch {
	case compiled.Error != nil:
		p.Add(compileError(path, expression, compiled.Error))
	case compiled.MaxCost > resourcev1.CELSelectorExpressionMaxCost:
		p.Add(field.Forbidden(path, "too complex, exceeds cost limit"))
	}
}

// compileError returns the error of a field whose expression does not compile.
func compileError(path *field.Path, expression string, err *apiservercel.Error) *field.Error {
	switch err.Type {
	case apiservercel.ErrorTypeRequired:
		return field.Required(path, err.Detail)
	case apiservercel.ErrorTypeInvalid:
		return field.Invalid(path, expression, err.Detail)
	default:
		return field.InternalError(path, err)
	}
}
