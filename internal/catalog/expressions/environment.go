package expressions

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Scope says which variables and types an expression sees besides object, oldObject, request and namespaceObject.
type Scope struct {
	Params     bool // params
	Authorizer bool // authorizer and authorizer.requestResource
	Patch      bool // the types Object and JSONPatch, to build a mutation of
}

// always is the version since which options apply that every server has.
var always = version.MajorMinor(1, 0)

// scopes has the environments of all scopes. Making one takes milliseconds and some 100 kB, so each is made when it is first needed.
var scopes = lazyScopes()

func lazyScopes() map[Scope]func() *environment.EnvSet {
	all := map[Scope]func() *environment.EnvSet{}
	for _, params := range []bool{false, true} {
		for _, authorizer := range []bool{false, true} {
			for _, patch := range []bool{false, true} {
				s := Scope{params, authorizer, patch}
				all[s] = sync.OnceValue(s.environment)
			}
		}
	}
	return all
}

// Base returns the environment that all of Kubernetes' expressions share, without variables.
func Base() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

func (s Scope) environment() *environment.EnvSet {
	requestType, namespaceType := RequestType(), NamespaceType()
	options := []cel.EnvOption{cel.Variable(Object, cel.DynType), cel.Variable(OldObject, cel.DynType),
		cel.Variable(NamespaceObject, namespaceType.CelType()), cel.Variable(Request, requestType.CelType())}
	if s.Params {
		options = append(options, cel.Variable(Params, cel.DynType))
	}
	if s.Authorizer {
		options = append(options, cel.Variable(Authorizer, library.AuthorizerType), cel.Variable(RequestResource, library.ResourceCheckType))
	}
	extended := mustExtend(Base(), environment.VersionedOptions{IntroducedVersion: always, EnvOptions: options,
		DeclTypes: []*apiservercel.DeclType{namespaceType, requestType}}, environment.StrictCostOpt)
	if s.Patch {
		extended = mustExtend(extended, environment.VersionedOptions{IntroducedVersion: always, EnvOptions: []cel.EnvOption{
			common.ResolverEnvOption(&mutation.DynamicTypeResolver{}), environment.UnversionedLib(library.JSONPatch)}})
	}
	return extended
}

func mustExtend(e *environment.EnvSet, options ...environment.VersionedOptions) *environment.EnvSet {
	extended, err := e.Extend(options...)
	if err != nil {
		panic(fmt.Sprintf("the CEL environment of admission is invalid: %v", err)) // it is made of constants
	}
	return extended
}

// DeclareVariables returns the environment with the variable variables of a type whose fields may be added later.
func DeclareVariables(env *cel.Env, variables *apiservercel.DeclType) (*cel.Env, error) {
	provider := apiservercel.NewDeclTypeProvider(variables)
	provider.SetRecognizeKeywordAsFieldName(true)
	options, err := provider.EnvOptions(env.CELTypeProvider())
	if err != nil {
		return nil, err
	}
	return env.Extend(append(options, cel.Variable(Variables, variables.CelType()))...)
}

// NewVariablesType returns a type for the variable variables, without fields.
func NewVariablesType() *apiservercel.DeclType {
	return apiservercel.NewObjectType(variablesType, map[string]*apiservercel.DeclField{})
}

// AddVariable adds a field of the type that its expression has to the type of the variable variables.
func AddVariable(variables *apiservercel.DeclType, name string, t *cel.Type) {
	variables.Fields[name] = required(name, declared(t))
}

// primitives are the types that a variable keeps. Others are lists and maps of them, or dynamic.
var primitives = map[*cel.Type]*apiservercel.DeclType{
	cel.AnyType: apiservercel.AnyType, cel.BoolType: apiservercel.BoolType, cel.BytesType: apiservercel.BytesType, cel.DoubleType: apiservercel.DoubleType,
	cel.DurationType: apiservercel.DurationType, cel.IntType: apiservercel.IntType, cel.NullType: apiservercel.NullType, cel.StringType: apiservercel.StringType,
	cel.TimestampType: apiservercel.TimestampType, cel.UintType: apiservercel.UintType,
}

func declared(t *cel.Type) *apiservercel.DeclType {
	if t == nil {
		return apiservercel.DynType
	}
	if primitive, ok := primitives[t]; ok {
		return primitive
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch parameters := t.Parameters(); len(parameters) {
		case 1:
			return apiservercel.NewListType(declared(parameters[0]), -1)
		case 2:
			return apiservercel.NewMapType(declared(parameters[0]), declared(parameters[1]), -1)
		}
	}
	return apiservercel.DynType
}
