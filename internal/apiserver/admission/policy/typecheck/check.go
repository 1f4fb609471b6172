package typecheck

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"

	"skiff/internal/catalog/expressions"
)

// Schemas has the kinds that are served and their schemas.
type Schemas struct {
	// Kinds returns the kinds of the objects of a resource; none if it is not served.
	Kinds func(schema.GroupVersionResource) []schema.GroupVersionKind
	// Document returns the OpenAPI v3 document of a group version.
	Document func(schema.GroupVersion) ([]byte, error)
}

// maxKinds bounds the kinds that a rule of a policy is checked against.
const maxKinds = 10

// Check returns what is wrong with the types of the expressions of a policy. Kinds without a schema are not checked.
func Check(p *admissionregistrationv1.ValidatingAdmissionPolicy, s Schemas) []admissionregistrationv1.ExpressionWarning {
	docs := &documents{read: s.Document, parsed: map[schema.GroupVersion]*document{}}
	checkers := newCheckers(p, s, docs)
	var warnings []admissionregistrationv1.ExpressionWarning
	add := func(path *field.Path, expression string) {
		var problems []string
		for _, c := range checkers {
			if problem := c.check(expression); problem != "" {
				problems = append(problems, fmt.Sprintf("%v: %s\n", c.gvk, problem))
			}
		}
		if len(problems) > 0 {
			warnings = append(warnings, admissionregistrationv1.ExpressionWarning{FieldRef: path.String(), Warning: strings.Join(problems, "\n")})
		}
	}
	for i, v := range p.Spec.Validations {
		path := field.NewPath("spec", "validations").Index(i)
		add(path.Child("expression"), v.Expression)
		if v.MessageExpression != "" {
			add(path.Child("messageExpression"), v.MessageExpression)
		}
	}
	return warnings
}

// checker checks expressions with objects of one kind.
type checker struct {
	gvk schema.GroupVersionKind
	env *cel.Env
	err error // why there is no env
}

func (c *checker) check(expression string) string {
	if c.err != nil {
		return fmt.Sprintf("type checking error: %v", c.err)
	}
	if _, issues := c.env.Compile(expression); issues != nil {
		return issues.String()
	}
	return ""
}

func newCheckers(p *admissionregistrationv1.ValidatingAdmissionPolicy, s Schemas, docs *documents) []*checker {
	var params *apiservercel.DeclType
	if k := p.Spec.ParamKind; k != nil {
		gvk := schema.FromAPIVersionAndKind(k.APIVersion, k.Kind)
		params, _ = docs.typeOf(gvk, gvk.Kind+"Params") // without a schema, parameters are not checked
	}
	var checkers []*checker
	for _, gvk := range kindsOf(p, s) {
		object, err := docs.typeOf(gvk, gvk.Kind+"Object")
		if err != nil {
			continue
		}
		c := &checker{gvk: gvk}
		c.env, c.err = newEnvironment(p, object, params)
		checkers = append(checkers, c)
	}
	return checkers
}

// newEnvironment returns an environment in which object, oldObject and params have the given types, or none, and variables those of the expressions of the
// policy. As upstream's it has no authorizer.requestResource.
func newEnvironment(p *admissionregistrationv1.ValidatingAdmissionPolicy, object, params *apiservercel.DeclType) (*cel.Env, error) {
	request, namespace := expressions.RequestType(), expressions.NamespaceType()
	types := []*apiservercel.DeclType{namespace, request}
	options := []cel.EnvOption{cel.Variable(expressions.NamespaceObject, namespace.CelType()), cel.Variable(expressions.Request, request.CelType()),
		cel.Variable(expressions.Object, celType(object)), cel.Variable(expressions.OldObject, celType(object)),
		cel.Variable(expressions.Authorizer, library.AuthorizerType)}
	if object != nil {
		types = append(types, object)
	}
	if p.Spec.ParamKind != nil {
		options = append(options, cel.Variable(expressions.Params, celType(params)))
		if params != nil {
			types = append(types, params)
		}
	}
	set, err := expressions.Base().Extend(environment.VersionedOptions{IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options, DeclTypes: types})
	if err != nil {
		return nil, err
	}
	variables := expressions.NewVariablesType()
	env, err := expressions.DeclareVariables(set.StoredExpressionsEnv(), variables)
	if err != nil {
		return nil, err
	}
	for _, v := range p.Spec.Variables {
		var t *cel.Type
		if ast, issues := env.Compile(v.Expression); issues == nil {
			t = ast.OutputType()
		}
		expressions.AddVariable(variables, v.Name, t)
	}
	return env, nil
}

func celType(t *apiservercel.DeclType) *cel.Type {
	if t == nil {
		return cel.DynType
	}
	return t.CelType()
}

// kindsOf returns the kinds that a policy applies to, sorted. Rules with wildcards are not checked.
func kindsOf(p *admissionregistrationv1.ValidatingAdmissionPolicy, s Schemas) []schema.GroupVersionKind {
	if p.Spec.MatchConstraints == nil {
		return nil
	}
	var kinds []schema.GroupVersionKind
	for i := range p.Spec.MatchConstraints.ResourceRules {
		found := kindsOfRule(&p.Spec.MatchConstraints.ResourceRules[i].Rule, s)
		kinds = append(kinds, found...)
		if len(found) == maxKinds {
			break
		}
	}
	slices.SortFunc(kinds, func(a, b schema.GroupVersionKind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Version, b.Version), strings.Compare(a.Kind, b.Kind))
	})
	return slices.Compact(kinds)
}

func kindsOfRule(r *admissionregistrationv1.Rule, s Schemas) (found []schema.GroupVersionKind) {
	wild := func(names []string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return strings.Contains(n, "*") })
	}
	if wild(r.APIGroups) || wild(r.APIVersions) {
		return nil
	}
	for _, group := range slices.Sorted(slices.Values(r.APIGroups)) {
		for _, version := range slices.Sorted(slices.Values(r.APIVersions)) {
			for _, resource := range slices.Sorted(slices.Values(r.Resources)) {
				if strings.ContainsAny(resource, "*/") {
					continue
				}
				for _, kind := range s.Kinds(schema.GroupVersionResource{Group: group, Version: version, Resource: resource}) {
					if found = append(found, kind); len(found) == maxKinds {
						return found
					}
				}
			}
		}
	}
	return found
}
