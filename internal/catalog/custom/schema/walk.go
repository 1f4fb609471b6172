package schema

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/warning"
)

// validate runs the rules on an object and returns why they refuse it, and what is left of the budget, which the object's rules share. When
// it is spent no more rules run.
func (r *rules) validate(ctx context.Context, ch *change, budget int64) (field.ErrorList, int64) {
	w := ruleWalk{ctx: ctx, budget: budget, values: r.values, change: ch}
	var old any
	if ch.old != nil {
		old = ch.old
	}
	w.visit(r, &place{walk: &w}, ch.obj, old)
	return w.errs, w.budget
}

// ruleWalk is one run of the rules of a schema on an object.
type ruleWalk struct {
	ctx    context.Context
	budget int64 // what rules may still cost; negative once no more may run
	errs   field.ErrorList
	values *valueSchema // of the object
	change *change
}

func (w *ruleWalk) add(err *field.Error) {
	w.errs = append(w.errs, err)
}

// stop ends the walk with an error.
func (w *ruleWalk) stop(err *field.Error) {
	w.add(err)
	w.budget = -1
}

func (w *ruleWalk) stopped() bool {
	return w.budget < 0
}

// visit runs the rules of a value, then those of what it contains. Null has no rules.
func (w *ruleWalk) visit(r *rules, at *place, value, old any) {
	if value == nil {
		return
	}
	if len(r.own) > 0 || r.err != nil {
		w.evaluate(r, at, value, nilIfEmpty(old))
	}
	for _, sub := range r.allOf {
		if w.stopped() {
			return
		}
		w.visit(sub, &place{parent: at, walk: w, kind: inAllOf}, value, old)
	}
	if w.stopped() {
		return
	}
	switch value := value.(type) {
	case []any:
		if r.items != nil {
			oldList, _ := old.([]any)
			w.visitList(r, at, value, oldList)
		}
	case map[string]any:
		oldMap, _ := old.(map[string]any)
		w.visitMap(r, at, value, oldMap)
	}
}

// nilIfEmpty returns nil for a nil map or slice in an interface.
func nilIfEmpty(value any) any {
	switch v := value.(type) {
	case map[string]any:
		if v == nil {
			return nil
		}
	case []any:
		if v == nil {
			return nil
		}
	}
	return value
}

// visitList visits the items of a list. Only those of a list of type map are paired with old ones, by their keys.
func (w *ruleWalk) visitList(r *rules, at *place, values, old []any) {
	paired := common.MakeMapList(r.values, old)
	for i, value := range values {
		w.visit(r.items, &place{parent: at, walk: w, kind: inItem, index: i}, value, paired.Get(value))
		if w.stopped() {
			return
		}
	}
}

func (w *ruleWalk) visitMap(r *rules, at *place, values, old map[string]any) {
	if r.additional != nil {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			w.visit(r.additional, &place{parent: at, walk: w, kind: inKey, name: key}, values[key], old[key])
			if w.stopped() {
				return
			}
		}
	}
	for _, property := range r.properties {
		if value, ok := values[property.name]; ok {
			w.visit(property.rules, &place{parent: at, walk: w, kind: inField, name: property.name}, value, old[property.name])
			if w.stopped() {
				return
			}
		}
	}
}

// evaluate runs the rules of a schema on a value.
func (w *ruleWalk) evaluate(r *rules, at *place, value, old any) {
	if r.err != nil {
		w.add(field.Invalid(at.path(), r.typeName, fmt.Sprintf("rule compiler initialization error: %v", r.err)))
		return
	}
	if w.budget <= 0 {
		w.stop(field.Invalid(at.path(), r.typeName, outOfBudget))
		return
	}
	e := newEvaluation(r, value, old)
	for i := range r.own {
		rule := &r.own[i]
		switch {
		case rule.err != nil:
			w.add(field.Invalid(at.path(), r.typeName, fmt.Sprintf("rule compile error: %v", rule.err)))
		case rule.program == nil:
		case rule.oldSelf && old == nil && !rule.optionalOld: // there is no transition
		default:
			w.run(e, rule, at)
		}
		if w.stopped() {
			return
		}
	}
}

const outOfBudget = "validation failed due to running out of cost budget, no further validation rules will be run"

// evaluation has the variables of a value's rules.
type evaluation struct {
	rules    *rules
	value    any
	plain    variables // oldSelf as it is
	optional variables // oldSelf as an optional
}

func newEvaluation(r *rules, value, old any) *evaluation {
	schema := r.values
	if r.isResource {
		schema = schema.asResource()
	}
	e := &evaluation{rules: r, value: value}
	e.plain.self = common.UnstructuredToVal(value, schema)
	e.optional = e.plain
	if !r.oldSelf {
		return e
	}
	e.optional.hasOldSelf, e.optional.oldSelf = true, types.OptionalNone
	if old != nil {
		e.plain.hasOldSelf, e.plain.oldSelf = true, common.UnstructuredToVal(old, schema)
		e.optional.oldSelf = types.OptionalOf(e.plain.oldSelf)
	}
	return e
}

// variables are what a rule can name.
type variables struct {
	self, oldSelf ref.Val
	hasOldSelf    bool
}

var _ interpreter.Activation = (*variables)(nil)

func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case schemacel.ScopedVarName:
		return v.self, true
	case schemacel.OldScopedVarName:
		return v.oldSelf, v.hasOldSelf
	}
	return nil, false
}

func (v *variables) Parent() interpreter.Activation {
	return nil
}

// run evaluates a rule and adds its error if it does not hold.
func (w *ruleWalk) run(e *evaluation, rule *rule, at *place) {
	vars := &e.plain
	if rule.optionalOld {
		vars = &e.optional
	}
	typeName := e.rules.typeName
	result, details, err := rule.program.ContextEval(w.ctx, vars)
	if details == nil {
		w.stop(field.InternalError(at.path(), fmt.Errorf(noCost, rule.name())))
		return
	}
	cost := details.ActualCost()
	switch {
	case cost == nil:
		w.stop(field.Invalid(at.path(), typeName, fmt.Sprintf(noCost, rule.name())))
	case *cost > math.MaxInt64 || int64(*cost) > w.budget:
		w.stop(field.Invalid(at.path(), typeName, outOfBudget))
	case err != nil:
		w.budget -= int64(*cost)
		w.fail(rule, at, typeName, err)
	default:
		w.budget -= int64(*cost)
		if result != types.True {
			w.refuse(e, rule, at)
		}
	}
}

const (
	noCost       = "runtime cost could not be calculated for validation rule: %v, no further validation rules will be run"
	costExceeded = "operation cancelled: actual cost limit exceeded"
)

// fail adds the error of a rule that could not be evaluated.
func (w *ruleWalk) fail(rule *rule, at *place, typeName string, err error) {
	text, format, add := err.Error(), "%v evaluating rule: %v", w.add
	switch {
	case strings.HasPrefix(text, "no such overload"):
		// Only values of dynamic type, such as int-or-string, pass the type checker and fail here.
		format = "'%v': call arguments did not match a supported operator, function or macro signature for rule: %v"
	case strings.HasPrefix(text, costExceeded):
		format, add = "'%v': no further validation rules will be run due to call cost exceeds limit for rule: %v", w.stop
	}
	add(field.Invalid(at.path(), typeName, fmt.Sprintf(format, err, rule.name())))
}

// refuse adds the error of a rule that does not hold. If the value did not change, and the rule does not look at the old one, it is a
// warning instead.
func (w *ruleWalk) refuse(e *evaluation, rule *rule, at *place) {
	path := at.path()
	if rule.fieldPath != "" {
		path = path.Child(rule.fieldPath)
	}
	add := func(err *field.Error) {
		if !rule.oldSelf && at.unchanged() {
			warning.AddWarning(w.ctx, "", err.Error())
		} else {
			w.add(err)
		}
	}
	detail := ""
	if rule.message != nil {
		var stop *field.Error
		if detail, stop = w.message(e, rule, path); stop != nil {
			add(stop)
			w.budget = -1
			return
		}
	}
	if detail == "" {
		detail = rule.detail()
	}
	value := e.value
	if e.rules.typeName == "object" || e.rules.typeName == "array" {
		value = field.OmitValueType{}
	}
	add(rule.error(path, value, detail))
}

// message evaluates the messageExpression of a rule. The text is empty if the rule's own message is to be used; an error ends the walk.
func (w *ruleWalk) message(e *evaluation, rule *rule, path *field.Path) (string, *field.Error) {
	result, details, err := rule.message.ContextEval(w.ctx, &e.plain)
	var cost *uint64
	if details != nil {
		cost = details.ActualCost()
	}
	typeName, source := e.rules.typeName, rule.source.MessageExpression
	switch {
	case cost == nil:
		detail := fmt.Sprintf("runtime cost could not be calculated for messageExpression: %q", source)
		return "", field.InternalError(path, &cel.Error{Type: cel.ErrorTypeInternal, Detail: detail})
	case *cost > math.MaxInt64 || int64(*cost) > w.budget:
		return "", field.Invalid(path, typeName,
			"messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run")
	case err != nil && strings.HasPrefix(err.Error(), costExceeded):
		return "", field.Invalid(path, typeName,
			fmt.Sprintf("no further validation rules will be run due to call cost exceeds limit for messageExpression: %q", source))
	}
	w.budget -= int64(*cost)
	if err != nil {
		return "", nil
	}
	text, _ := result.Value().(string)
	text = strings.TrimSpace(text)
	if len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes || strings.Contains(text, "\n") {
		return "", nil
	}
	return text, nil
}

// name is how errors call a rule: its message, or the rule itself.
func (r *rule) name() string {
	if r.source.Message != "" {
		return strings.TrimSpace(r.source.Message)
	}
	return strings.TrimSpace(r.source.Rule)
}

// detail is the message of the rule, and if it has none that it failed.
func (r *rule) detail() string {
	if r.source.Message == "" {
		return "failed rule: " + r.name()
	}
	return strings.TrimSpace(r.source.Message)
}

func (r *rule) error(path *field.Path, value any, detail string) *field.Error {
	if r.source.Reason != nil {
		switch *r.source.Reason {
		case apiextensionsv1.FieldValueForbidden:
			return field.Forbidden(path, detail)
		case apiextensionsv1.FieldValueRequired:
			return field.Required(path, detail)
		case apiextensionsv1.FieldValueDuplicate:
			return field.Duplicate(path, value)
		}
	}
	return field.Invalid(path, value, detail)
}
