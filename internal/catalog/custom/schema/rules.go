package schema

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
)

// rules are the compiled CEL rules of a schema, and those of the schemas below it. A schema without rules has none.
type rules struct {
	own        []rule
	oldSelf    bool  // at least one of its own rules uses oldSelf
	err        error // why its own rules have no environment to run in
	values     *valueSchema
	typeName   string
	isResource bool // root of the custom resource or of an embedded resource

	items      *rules
	additional *rules
	properties []propertyRules // by name
	allOf      []*rules
}

type propertyRules struct {
	name  string
	rules *rules
}

// rule is a compiled rule. Without program and error it is empty.
type rule struct {
	program     celgo.Program
	message     celgo.Program // of messageExpression; nil if there is none, or it does not compile
	err         *cel.Error
	oldSelf     bool // uses oldSelf
	optionalOld bool // oldSelf is optional
	fieldPath   string
	source      apiextensionsv1.ValidationRule
}

func (s *Schema) compiledRules(c *compiled) (*rules, error) {
	p := s.load()
	return p.rules.get(func() (*rules, error) {
		b := newRuleBuilder(celconfig.PerCallLimit)
		r := b.buildAll(c.structural, true)
		if r != nil {
			p.size.Add(int64(b.size))
		}
		return r, nil
	})
}

// hasRules says whether there are rules in a schema. Those below allOf do not count, though they run if others do.
func hasRules(s *structuralschema.Structural) bool {
	if s == nil {
		return false
	}
	if len(s.XValidations) > 0 || hasRules(s.Items) || s.AdditionalProperties != nil && hasRules(s.AdditionalProperties.Structural) {
		return true
	}
	for _, property := range s.Properties {
		if hasRules(&property) {
			return true
		}
	}
	return false
}

// hasRulesBelow is hasRules with those below allOf.
func hasRulesBelow(s *structuralschema.Structural) bool {
	if s == nil {
		return false
	}
	if len(s.XValidations) > 0 || hasRulesBelow(s.Items) || hasRulesBelow(ofAdditional(s)) {
		return true
	}
	for _, property := range s.Properties {
		if hasRulesBelow(&property) {
			return true
		}
	}
	if s.ValueValidation != nil {
		for i := range s.ValueValidation.AllOf {
			if hasRulesBelow(fromNested(&s.ValueValidation.AllOf[i])) {
				return true
			}
		}
	}
	return false
}

// ruleBuilder compiles the rules of a schema.
type ruleBuilder struct {
	env   *celgo.Env // without variables, shared by all schemas
	limit uint64     // cost of one evaluation
	done  []ownRules
	types int // how many types of self have a name
	size  int
}

// ownRules are the compiled rules of a schema, which others below the same root may equal.
type ownRules struct {
	validations apiextensionsv1.ValidationRules
	of          *structuralschema.Structural
	rules       []rule
}

func newRuleBuilder(limit uint64) *ruleBuilder {
	return &ruleBuilder{env: environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()).StoredExpressionsEnv(), limit: limit}
}

// buildAll compiles the rules of a whole schema, nil if it has none.
func (b *ruleBuilder) buildAll(s *structuralschema.Structural, isResource bool) *rules {
	if !hasRules(s) {
		return nil
	}
	return b.build(s, s, newValueSchema(s), isResource, model.SchemaDeclType(s, isResource))
}

// programSize estimates what a program holds. Most of it is a map of all functions.
const programSize = 16 << 10

// build compiles the rules of the schema named rulesOf, which is the schema of the values itself or one of its allOf. Schemas without rules
// are left out, so that no values need be known of them.
func (b *ruleBuilder) build(rulesOf, of *structuralschema.Structural, values *valueSchema, isResource bool, declType *cel.DeclType) *rules {
	r := &rules{values: values, typeName: of.Type, isResource: isResource}
	b.size += valueSize
	r.own, r.err = b.compileOnce(rulesOf, of, declType)
	r.oldSelf = slices.ContainsFunc(r.own, func(rule rule) bool { return rule.oldSelf })
	var elements *cel.DeclType
	if declType != nil {
		elements = declType.ElemType
	}
	if of.Items != nil && hasRulesBelow(rulesOf.Items) {
		r.items = b.build(rulesOf.Items, of.Items, values.Items().(*valueSchema), of.Items.XEmbeddedResource, elements)
	}
	b.buildProperties(r, rulesOf, of, values, declType)
	if additional := ofAdditional(of); additional != nil && hasRulesBelow(ofAdditional(rulesOf)) {
		additionalValues := values.AdditionalProperties().Schema().(*valueSchema)
		r.additional = b.build(ofAdditional(rulesOf), additional, additionalValues, additional.XEmbeddedResource, elements)
	}
	if rulesOf.ValueValidation != nil {
		for i := range rulesOf.ValueValidation.AllOf {
			if sub := b.build(fromNested(&rulesOf.ValueValidation.AllOf[i]), of, values, isResource, declType); sub != nil {
				r.allOf = append(r.allOf, sub)
			}
		}
	}
	if len(r.own) == 0 && r.err == nil && r.items == nil && r.additional == nil && len(r.properties) == 0 && len(r.allOf) == 0 {
		return nil
	}
	return r
}

func ofAdditional(s *structuralschema.Structural) *structuralschema.Structural {
	if s.AdditionalProperties == nil {
		return nil
	}
	return s.AdditionalProperties.Structural
}

func (b *ruleBuilder) buildProperties(r *rules, rulesOf, of *structuralschema.Structural, values *valueSchema, declType *cel.DeclType) {
	for name, ruleProperty := range rulesOf.Properties {
		property, ok := of.Properties[name]
		if !ok || !hasRulesBelow(&ruleProperty) {
			continue
		}
		propertyType := propertyDeclType(name, &property, declType)
		if propertyType == nil {
			continue
		}
		sub := b.build(&ruleProperty, &property, values.Properties()[name].(*valueSchema), property.XEmbeddedResource, propertyType)
		if sub != nil {
			r.properties = append(r.properties, propertyRules{name, sub})
		}
	}
	slices.SortFunc(r.properties, func(a, b propertyRules) int { return strings.Compare(a.name, b.name) })
}

// propertyDeclType returns the type of a property, nil if rules do not see it. Names that CEL cannot express are not fields of their
// parent's type, but rules of their own run.
func propertyDeclType(name string, property *structuralschema.Structural, parent *cel.DeclType) *cel.DeclType {
	escaped, ok := cel.Escape(name)
	if !ok {
		return model.SchemaDeclType(property, property.XEmbeddedResource)
	}
	if parent == nil {
		return nil
	}
	if f, ok := parent.Fields[escaped]; ok {
		return f.Type
	}
	return nil
}

// fromNested returns a nested value validation as a schema, so that one function builds rules of both.
func fromNested(n *structuralschema.NestedValueValidation) *structuralschema.Structural {
	if n == nil {
		return nil
	}
	s := &structuralschema.Structural{
		Generic:              n.ForbiddenGenerics,
		Extensions:           n.ForbiddenExtensions,
		ValidationExtensions: n.ValidationExtensions,
		ValueValidation:      &n.ValueValidation,
		Items:                fromNested(n.Items),
	}
	if len(n.Properties) > 0 {
		s.Properties = make(map[string]structuralschema.Structural, len(n.Properties))
		for name, property := range n.Properties {
			s.Properties[name] = *fromNested(&property)
		}
	}
	if n.AdditionalProperties != nil {
		s.AdditionalProperties = &structuralschema.StructuralOrBool{Structural: fromNested(n.AdditionalProperties)}
	}
	return s
}

// compileOnce compiles a schema's own rules, or returns those of an equal schema: definitions made of Go types repeat a schema wherever its
// type is used.
func (b *ruleBuilder) compileOnce(rulesOf, of *structuralschema.Structural, declType *cel.DeclType) ([]rule, error) {
	if len(rulesOf.XValidations) == 0 {
		return nil, nil
	}
	for _, d := range b.done {
		if reflect.DeepEqual(d.validations, rulesOf.XValidations) && reflect.DeepEqual(d.of, of) {
			return d.rules, nil
		}
	}
	compiled, err := b.compile(rulesOf, of, declType)
	if err == nil {
		b.done = append(b.done, ownRules{rulesOf.XValidations, of, compiled})
	}
	return compiled, err
}

// compile compiles a schema's own rules. The environment has the schema's type as self and oldSelf.
func (b *ruleBuilder) compile(rulesOf, of *structuralschema.Structural, declType *cel.DeclType) ([]rule, error) {
	if declType == nil {
		return nil, fmt.Errorf("failed to convert to declType for CEL validation rules")
	}
	envs := ruleEnvironments{builder: b, self: declType.MaybeAssignTypeName(b.newTypeName())}
	compiled := make([]rule, len(rulesOf.XValidations))
	for i, source := range rulesOf.XValidations {
		optionalOld := source.OptionalOldSelf != nil && *source.OptionalOldSelf
		compiled[i] = rule{source: source, optionalOld: optionalOld}
		if strings.TrimSpace(source.Rule) == "" {
			continue
		}
		env, err := envs.get(optionalOld)
		if err != nil {
			return nil, err
		}
		b.compileRule(&compiled[i], env, of)
	}
	return compiled, nil
}

// newTypeName returns a name for a type of self. Names must differ, since types are compared by name.
func (b *ruleBuilder) newTypeName() string {
	b.types++
	return fmt.Sprintf("selfType%d", b.types)
}

// ruleEnvironments are the environments of a schema's rules, made when the first rule needs them.
type ruleEnvironments struct {
	builder *ruleBuilder
	self    *cel.DeclType
	envs    [2]*celgo.Env // with oldSelf as it is, and with optional oldSelf
}

func (e *ruleEnvironments) get(optionalOld bool) (*celgo.Env, error) {
	selfType := e.self.CelType()
	oldType, i := selfType, 0
	if optionalOld {
		oldType, i = types.NewOptionalType(selfType), 1
	}
	if e.envs[i] != nil {
		return e.envs[i], nil
	}
	base := e.builder.env
	provider := cel.NewDeclTypeProvider(e.self)
	provider.SetRecognizeKeywordAsFieldName(true)
	options, err := provider.EnvOptions(base.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	options = append(options, celgo.Variable(schemacel.ScopedVarName, selfType), celgo.Variable(schemacel.OldScopedVarName, oldType))
	e.envs[i], err = base.Extend(options...)
	return e.envs[i], err
}

// compileRule compiles a rule and its messageExpression. A definition's rules compiled when it was written, so that errors here mean that
// this server knows less than the one that accepted them.
func (b *ruleBuilder) compileRule(r *rule, env *celgo.Env, of *structuralschema.Structural) {
	ast, issues := env.Compile(r.source.Rule)
	if issues != nil {
		r.err = &cel.Error{Type: cel.ErrorTypeInvalid, Detail: "compilation failed: " + issues.String()}
		return
	}
	if ast.OutputType() != celgo.BoolType {
		r.err = &cel.Error{Type: cel.ErrorTypeInvalid, Detail: "cel expression must evaluate to a bool"}
		return
	}
	for _, reference := range ast.NativeRep().ReferenceMap() {
		if reference.Name == schemacel.OldScopedVarName {
			r.oldSelf = true
			break
		}
	}
	program, err := b.program(ast)
	if err != nil {
		r.err = &cel.Error{Type: cel.ErrorTypeInvalid, Detail: "program instantiation failed: " + err.Error()}
		return
	}
	r.program = program
	if r.source.MessageExpression != "" && !b.compileMessage(r, env) {
		return // the field path is not used either
	}
	if r.source.FieldPath != "" {
		r.fieldPath = normalFieldPath(r.source.FieldPath, of)
	}
}

// normalFieldPath returns a rule's field path as errors write it, "" if it is not one of the schema. Upstream's parser panics on paths that go
// below additionalProperties without a schema.
func normalFieldPath(source string, of *structuralschema.Structural) (path string) {
	defer func() {
		if recover() != nil {
			path = ""
		}
	}()
	if valid, _, err := schemacel.ValidFieldPath(source, of); err == nil {
		return valid.String()
	}
	return ""
}

// compileMessage compiles a messageExpression and says whether it did.
func (b *ruleBuilder) compileMessage(r *rule, env *celgo.Env) bool {
	ast, issues := env.Compile(r.source.MessageExpression)
	if issues != nil || ast.OutputType() != celgo.StringType {
		return false
	}
	program, err := b.program(ast)
	if err != nil {
		return false
	}
	r.message = program
	return true
}

// program plans an expression. It does so in the environment that all schemas share, since a program holds its environment; the variables and
// types of self are needed only to compile.
func (b *ruleBuilder) program(ast *celgo.Ast) (celgo.Program, error) {
	b.size += programSize
	return b.env.Program(ast, celgo.CostLimit(b.limit), celgo.CostTracking(costs), celgo.InterruptCheckFrequency(celconfig.CheckFrequency))
}

// costs says what calls of Kubernetes' libraries cost at run time.
var costs = &library.CostEstimator{}
