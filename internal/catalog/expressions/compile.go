package expressions

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Result lists the types that an expression may evaluate to.
type Result []*cel.Type

var (
	Condition          = Result{cel.BoolType}
	Message            = Result{cel.StringType}
	AuditValue         = Result{cel.StringType, cel.NullType}
	Anything           = Result{cel.AnyType, cel.DynType}
	ApplyConfiguration = Result{types.NewObjectType("Object")}
	JSONPatch          = Result{cel.ListType(types.NewObjectType("JSONPatch"))}
)

// Mode says what a server of which version must understand an expression.
type Mode = environment.Type

const (
	New    Mode = environment.NewExpressions    // the previous version too, so that a cluster can be rolled back
	Stored Mode = environment.StoredExpressions // this version
)

// Compiled is an expression with either its program or the error that it does not compile with.
type Compiled struct {
	Expression string
	Program    cel.Program
	Type       *cel.Type
	Error      *apiservercel.Error

	loops bool // whether the program has a comprehension, so that it can take long
}

// Eval evaluates the program. One without a loop ends before a context could interrupt it, and watching the context costs more than most expressions.
func (c *Compiled) Eval(ctx context.Context, variables interpreter.Activation) (ref.Val, *cel.EvalDetails, error) {
	if c.loops {
		return c.Program.ContextEval(ctx, variables)
	}
	return c.Program.Eval(variables)
}

// Compiler compiles the expressions of one object. It may be used by one goroutine at a time.
type Compiler struct {
	variables    *apiservercel.DeclType // nil: expressions do not see variables
	environments map[scopeAndMode]*cel.Env
}

type scopeAndMode struct {
	Scope
	Mode
}

// NewCompiler returns a compiler of expressions that may refer to variables of the object if composed is set. Variables are added by CompileVariable.
func NewCompiler(composed bool) *Compiler {
	c := &Compiler{environments: map[scopeAndMode]*cel.Env{}}
	if composed {
		c.variables = NewVariablesType()
	}
	return c
}

// CompileVariable compiles the expression of a variable, which sees the variables before it. Later expressions see it, even if it does not compile.
func (c *Compiler) CompileVariable(name, expression string, s Scope, m Mode) Compiled {
	compiled := c.Compile(expression, Anything, s, m)
	AddVariable(c.variables, name, compiled.Type)
	return compiled
}

// Compile compiles an expression.
func (c *Compiler) Compile(expression string, want Result, s Scope, m Mode) Compiled {
	fail := func(t apiservercel.ErrorType, cause error, detail string) Compiled {
		return Compiled{Expression: expression, Error: &apiservercel.Error{Type: t, Detail: detail, Cause: cause}}
	}
	env, err := c.environment(s, m)
	if err != nil {
		return fail(apiservercel.ErrorTypeInternal, nil, fmt.Sprintf("unexpected error loading CEL environment: %v", err))
	}
	checked, issues := env.Compile(expression)
	if issues != nil {
		return fail(apiservercel.ErrorTypeInvalid, apiservercel.NewCompilationError(issues), "compilation failed: "+issues.String())
	}
	if !want.allows(checked.OutputType()) {
		return fail(apiservercel.ErrorTypeInvalid, nil, want.mismatch(checked.OutputType()))
	}
	program, err := env.Program(checked, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return fail(apiservercel.ErrorTypeInternal, nil, "program instantiation failed: "+err.Error())
	}
	return Compiled{Expression: expression, Program: program, Type: checked.OutputType(), loops: hasLoop(checked)}
}

func hasLoop(a *cel.Ast) bool {
	return len(ast.MatchDescendants(ast.NavigateAST(a.NativeRep()), ast.KindMatcher(ast.ComprehensionKind))) > 0
}

func (c *Compiler) environment(s Scope, m Mode) (*cel.Env, error) {
	key := scopeAndMode{s, m}
	if env := c.environments[key]; env != nil {
		return env, nil
	}
	env, err := scopes[s]().Env(m)
	if err == nil && c.variables != nil {
		env, err = DeclareVariables(env, c.variables)
	}
	if err == nil {
		c.environments[key] = env
	}
	return env, err
}

func (r Result) allows(t *cel.Type) bool {
	for _, allowed := range r {
		if t.IsExactType(allowed) || cel.AnyType.IsExactType(allowed) {
			return true
		}
	}
	return false
}

func (r Result) mismatch(t *cel.Type) string {
	if len(r) == 1 {
		return fmt.Sprintf("must evaluate to %v but got %v", r[0], t)
	}
	return fmt.Sprintf("must evaluate to one of %v but got %v", []*cel.Type(r), t)
}
