package apiextensions

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	internal "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

const rulesName = "x-kubernetes-validations"

var ruleReasons = []internal.FieldValueErrorReason{
	internal.FieldValueDuplicate, internal.FieldValueForbidden, internal.FieldValueInvalid, internal.FieldValueRequired,
}

// validateRule validates what a rule of a schema says besides its expressions.
func (w *walker) validateRule(s *internal.JSONSchemaProps, i int, at place) {
	rule, path := &s.XValidations[i], at.path.Child(rulesName).Index(i)
	const blank, broken = "must be non-empty if specified", "must not contain line breaks"
	text, message := strings.TrimSpace(rule.Rule), strings.TrimSpace(rule.Message)
	switch {
	case text == "":
		w.add(field.Required(path.Child("rule"), "rule is not specified"))
	case rule.Message != "" && message == "":
		w.add(field.Invalid(path.Child("message"), rule.Message, blank))
	case hasLineBreak(message):
		w.add(field.Invalid(path.Child("message"), rule.Message, broken))
	case hasLineBreak(text) && message == "":
		w.add(field.Required(path.Child("message"), "message must be specified if rule contains line breaks"))
	}
	if rule.MessageExpression != "" && strings.TrimSpace(rule.MessageExpression) == "" {
		w.add(field.Required(path.Child("messageExpression"), "messageExpression must be non-empty if specified"))
	}
	if rule.Reason != nil && !slices.Contains(ruleReasons, *rule.Reason) {
		w.add(field.NotSupported(path.Child("reason"), *rule.Reason, ruleReasons))
	}
	if rule.FieldPath == "" {
		return
	}
	if strings.TrimSpace(rule.FieldPath) == "" {
		w.add(field.Invalid(path.Child("fieldPath"), rule.FieldPath, blank))
	}
	if hasLineBreak(rule.FieldPath) {
		w.add(field.Invalid(path.Child("fieldPath"), rule.FieldPath, broken))
	}
	if !isFieldPath(s, at.structural, rule.FieldPath) {
		w.add(field.Invalid(path.Child("fieldPath"), rule.FieldPath, "must be a valid path"))
	}
}

func hasLineBreak(s string) bool { return strings.ContainsAny(s, "\n\r") }

// isFieldPath reports whether a path names a field of a schema. What cannot be converted is reported elsewhere.
func isFieldPath(s *internal.JSONSchemaProps, structural *structuralschema.Structural, path string) bool {
	if structural == nil {
		var err error
		if structural, err = structuralschema.NewStructural(s); err != nil {
			return true
		}
	}
	_, _, err := resolve(path, structural, true)
	return err == nil
}

// longestPath bounds the paths of fields: upstream's parser cannot read longer parts.
const longestPath = 64 << 10

// resolve returns the field that a path names in a schema, and its schema, which is nil below what has none. brackets says whether
// keys may be written in brackets.
func resolve(path string, s *structuralschema.Structural, brackets bool) (*field.Path, *structuralschema.Structural, error) {
	unknown := errors.New("does not refer to a valid field")
	if s == nil || len(path) >= longestPath {
		return nil, nil, unknown
	}
	found, schema, err := parsePath(path, s, brackets)
	if err == nil && found == nil {
		err = unknown
	}
	return found, schema, err
}

// parsePath is upstream's parser, which panics where a path goes on below values without a schema.
func parsePath(path string, s *structuralschema.Structural, brackets bool) (found *field.Path, schema *structuralschema.Structural, err error) {
	defer func() {
		if recover() != nil {
			found, schema, err = nil, nil, errors.New("does not refer to a valid field")
		}
	}()
	return cel.ValidFieldPath(path, s, cel.WithFieldPathAllowArrayNotation(brackets))
}

// compileRules compiles the rules of a schema and estimates what they cost.
func (w *walker) compileRules(s *internal.JSONSchemaProps, at place) {
	path := at.path.Child(rulesName)
	decl, err := at.scope.resolve()
	if err != nil {
		w.refuse(field.InternalError(path, fmt.Errorf("internal error: failed to construct type information for x-kubernetes-validations rules: %w", err)))
		return
	}
	compiled, err := cel.Compile(at.scope.structural, decl, celconfig.PerCallLimit, expressionEnvironment(), w.lenient.expressions())
	if err != nil {
		w.refuse(field.InternalError(path, err))
		return
	}
	for i := range compiled {
		w.validateCompiled(&compiled[i], &s.XValidations[i], path.Index(i), at)
	}
}

func (w *walker) refuse(errs ...*field.Error) {
	w.expressionErrors = append(w.expressionErrors, errs...)
}

func (w *walker) validateCompiled(compiled *cel.CompilationResult, rule *internal.ValidationRule, path *field.Path, at place) {
	w.addCost(path.Child("rule"), "estimated rule cost", ruleCost(compiled, at.scope))
	if e := compiled.Error; e != nil {
		if e.Type == apiservercel.ErrorTypeRequired {
			w.refuse(field.Required(path.Child("rule"), e.Detail))
		} else {
			w.refuse(field.Invalid(path.Child("rule"), *rule, e.Detail))
		}
	}
	if e := compiled.MessageExpressionError; e != nil {
		w.refuse(field.Invalid(path.Child("messageExpression"), *rule, e.Detail))
	} else if compiled.MessageExpression != nil {
		w.addCost(path.Child("messageExpression"), "estimated messageExpression cost", compiled.MessageExpressionMaxCost)
	}
	switch {
	case compiled.UsesOldSelf && at.uncorrelated != nil:
		w.refuse(field.Invalid(path.Child("rule"), rule.Rule,
			fmt.Sprintf("oldSelf cannot be used on the uncorrelatable portion of the schema within %v", at.uncorrelated)))
	case !compiled.UsesOldSelf && rule.OptionalOldSelf != nil:
		w.refuse(field.Invalid(path.Child("optionalOldSelf"), *rule.OptionalOldSelf, "may not be set if oldSelf is not used in rule"))
	}
}

// addCost adds the estimated cost of an expression to the total, and an error if it is above the limit, unless the schema is unchanged.
func (w *walker) addCost(path *field.Path, what string, cost uint64) {
	if cost > maxExpressionCost && !w.lenient.sameSchema(w.version, w.spec) {
		w.refuse(field.Forbidden(path, overBudget(what, cost, maxExpressionCost)))
	}
	w.total.add(path, cost)
}
