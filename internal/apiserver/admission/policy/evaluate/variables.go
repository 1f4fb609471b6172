package evaluate

import (
	"context"
	"fmt"
	"math"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"skiff/internal/catalog/expressions"
)

// VariableSet has the compiled variables of a policy. A nil set has none.
type VariableSet struct {
	names    []string
	byName   map[string]int
	compiled []expressions.Compiled
}

// Add adds a variable. A later one of the same name takes its place.
func (s *VariableSet) Add(name string, c expressions.Compiled) {
	if s.byName == nil {
		s.byName = map[string]int{}
	}
	if at, ok := s.byName[name]; ok {
		s.compiled[at] = c
		return
	}
	s.byName[name] = len(s.names)
	s.names, s.compiled = append(s.names, name), append(s.compiled, c)
}

// variables is the CEL value of the variable variables. Its fields are evaluated when they are first read.
type variables struct {
	set        *VariableSet
	activation *activation
	ctx        context.Context
	values     []ref.Val
}

var (
	_ traits.Mapper = (*variables)(nil)

	variablesValueType = types.NewTypeValue("kubernetes.variables", traits.IndexerType|traits.FieldTesterType|traits.IterableType)
)

// Find implements traits.Mapper.
func (v *variables) Find(key ref.Val) (ref.Val, bool) {
	text, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	name, ok := apiservercel.Unescape(string(text))
	if !ok || v.set == nil {
		return nil, false
	}
	at, ok := v.set.byName[name]
	if !ok {
		return nil, false
	}
	if v.values == nil {
		v.values = make([]ref.Val, len(v.set.names))
	}
	if v.values[at] == nil {
		// dyn(variables) lets a variable read itself, which is found only here. Without a value while it is evaluated it would never end.
		v.values[at] = types.NewErr("composited variable %q fails to evaluate: it refers to itself", name)
		v.values[at] = v.evaluate(name, &v.set.compiled[at])
	}
	return v.values[at], true
}

// evaluate evaluates a variable and charges it to the expression that reads it.
func (v *variables) evaluate(name string, c *expressions.Compiled) ref.Val {
	if c.Error != nil {
		return types.NewErr("composited variable %q fails to compile: %v", name, c.Error)
	}
	value, details, err := c.Eval(v.ctx, v.activation)
	if details == nil {
		return types.NewErr("unable to get evaluation details of variable %q", name)
	}
	spent, ok := cost(details)
	if !ok {
		return types.NewErr("unable to calculate cost of variable %q", name)
	}
	if v.activation.spent += spent; v.activation.spent < 0 {
		v.activation.spent = math.MaxInt64
	}
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", name, err)
	}
	return value
}

// Get implements traits.Indexer.
func (v *variables) Get(key ref.Val) ref.Val {
	if value, ok := v.Find(key); ok {
		return value
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

// Contains implements traits.Container.
func (v *variables) Contains(key ref.Val) ref.Val {
	value, found := v.Find(key)
	if value != nil && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(found)
}

// Size implements traits.Sizer.
func (v *variables) Size() ref.Val {
	if v.set == nil {
		return types.IntZero
	}
	return types.Int(len(v.set.names))
}

// Iterator implements traits.Iterable: it yields the names in the order of their declaration.
func (v *variables) Iterator() traits.Iterator {
	var names []string
	if v.set != nil {
		names = v.set.names
	}
	return types.NewStringList(types.DefaultTypeAdapter, names).Iterator()
}

// ConvertToNative implements ref.Val; variables are no Go value.
func (v *variables) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("disallowed conversion from %q to %q", variablesValueType.TypeName(), t.Name())
}

// ConvertToType implements ref.Val.
func (v *variables) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case variablesValueType:
		return v
	case types.TypeType:
		return variablesValueType
	}
	return types.NewErr("disallowed conversion from %q to %q", variablesValueType.TypeName(), t.TypeName())
}

// Equal implements ref.Val.
func (v *variables) Equal(other ref.Val) ref.Val {
	o, ok := other.(*variables)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(v == o)
}

// Type implements ref.Val.
func (v *variables) Type() ref.Type { return variablesValueType }

// Value implements ref.Val.
func (v *variables) Value() any { return types.NoSuchOverloadErr() }
