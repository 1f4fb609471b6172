package apiextensions

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// The limits of what rules may cost by estimate: the expressions that run in other clusters must run here.
const (
	maxExpressionCost = 10_000_000
	maxSchemaCost     = 100_000_000
)

// totalCost is the estimated cost of all expressions of a schema.
type totalCost struct {
	sum  uint64
	most []expressionCost // the most expensive ones, the worst first
}

type expressionCost struct {
	path *field.Path
	cost uint64
}

const mostExpensive = 4

func (t *totalCost) add(path *field.Path, cost uint64) {
	t.sum += min(cost, math.MaxUint64-t.sum)
	if cost < maxSchemaCost/100 {
		return
	}
	t.most = append(t.most, expressionCost{path, cost})
	slices.SortStableFunc(t.most, func(a, b expressionCost) int {
		switch {
		case a.cost > b.cost:
			return -1
		case a.cost < b.cost:
			return 1
		}
		return 0
	})
	t.most = t.most[:min(len(t.most), mostExpensive)]
}

// validate adds errors if the sum is above the limit.
func (t *totalCost) validate(p *check.Part, name string) {
	if t.sum <= maxSchemaCost {
		return
	}
	for _, e := range t.most {
		p.Add(field.Forbidden(e.path, "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"))
	}
	p.Forbidden(name, overBudget("x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema", t.sum, maxSchemaCost))
}

// ruleCost returns the estimated cost of a rule for all the values that an object has of it.
func ruleCost(compiled *cel.CompilationResult, s *scope) uint64 {
	if s.count != nil {
		return multiply(compiled.MaxCost, *s.count)
	}
	return multiply(compiled.MaxCost, compiled.MaxCardinality)
}

// multiply returns the product of two costs, or the largest cost if that is too large.
func multiply(a, b uint64) uint64 {
	if a != 0 && math.MaxUint64/a < b {
		return math.MaxUint64
	}
	return a * b
}

// overBudget says by how much an estimate exceeds its limit: exactly if it is close, as it must not read 1.0.
func overBudget(what string, cost, limit uint64) string {
	factor := float64(cost) / float64(limit)
	text := fmt.Sprintf("%.1fx", factor)
	switch {
	case factor > 100:
		text = "more than 100x"
	case factor < 1.5:
		text = fmt.Sprintf("%fx", factor)
	}
	return what + " exceeds budget by factor of " + text +
		" (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)"
}
