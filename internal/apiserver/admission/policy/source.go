package policy

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/policy/match"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Definition is what both kinds of policies have in common.
type Definition struct {
	Name        string
	Failure     *admissionregistrationv1.FailurePolicyType
	ParamKind   *admissionregistrationv1.ParamKind
	Constraints *admissionregistrationv1.MatchResources
}

// Ignore reports whether errors of the policy are ignored.
func (d *Definition) Ignore() bool {
	return d.Failure != nil && *d.Failure == admissionregistrationv1.Ignore
}

// Hook is a policy with its bindings, sorted by name. E is its compiled form.
type Hook[E any] struct {
	Definition
	Criteria *match.Criteria
	Bindings []*Binding
	Compiled func() E
	Stage    string // in traces, while the policy is evaluated
	Refused  string // in traces, after the policy refused the write
}

// Binding is a binding of either kind.
type Binding struct {
	Name, Policy string
	Criteria     *match.Criteria
	Ref          *ParamRef
	Actions      []admissionregistrationv1.ValidationAction
}

// Kinds say how the objects of a kind of policies and of its bindings are read. Spec returns what the compiled form depends on.
type Kinds[E any] struct {
	Plugin             string
	Policies, Bindings schema.GroupResource
	Definition         func(catalog.Object) Definition
	Spec               func(catalog.Object) any
	Compile            func(catalog.Object) E
	Binding            func(catalog.Object) Binding
}

// Source keeps the index of all policies of a kind.
type Source[E any] struct {
	Options
	Reader objects.Reader
	kinds  Kinds[E]
	index  atomic.Pointer[index[E]]

	mu       sync.Mutex
	policies map[string]*policyEntry[E]
	bindings map[string]map[string]*Binding // by policy and name
	named    map[string]bool                // the policies that have stages of their own in traces
}

type policyEntry[E any] struct {
	hook *Hook[E]
	uid  types.UID
	spec any
}

// NewSource returns a source that follows the policies and bindings.
func NewSource[E any](r objects.Reader, o Options, kinds Kinds[E]) *Source[E] {
	s := &Source[E]{Options: o, Reader: r, kinds: kinds, policies: map[string]*policyEntry[E]{}, bindings: map[string]map[string]*Binding{}, named: map[string]bool{}}
	r.Follow(kinds.Policies, s.policyChanged)
	r.Follow(kinds.Bindings, s.bindingChanged)
	return s
}

func (s *Source[E]) policyChanged(before, after catalog.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after == nil {
		delete(s.policies, before.GetName())
		s.reindex()
		return
	}
	spec := s.kinds.Spec(after)
	known := s.policies[after.GetName()]
	if known != nil && known.uid == after.GetUID() && apiequality.Semantic.DeepEqual(known.spec, spec) {
		return // the status changed
	}
	d := s.kinds.Definition(after)
	hook := &Hook[E]{Definition: d, Criteria: match.New(d.Constraints), Compiled: sync.OnceValue(func() E { return s.kinds.Compile(after) }),
		Stage: s.stage(d.Name)}
	hook.Refused = hook.Stage + " refused"
	s.policies[d.Name] = &policyEntry[E]{hook: hook, uid: after.GetUID(), spec: spec}
	s.bind(d.Name)
	s.reindex()
}

// maxNamed bounds the policies that traces tell apart: traces keep the names of stages for as long as the server lives, and have room for a thousand.
const maxNamed = 100

// stage returns the name of the stage of a policy in traces.
func (s *Source[E]) stage(policy string) string {
	if !s.named[policy] && len(s.named) >= maxNamed {
		policy = "(other)"
	} else {
		s.named[policy] = true
	}
	return "admission/" + s.kinds.Plugin + "/" + policy
}

func (s *Source[E]) bindingChanged(before, after catalog.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed []string
	if before != nil {
		b := s.kinds.Binding(before)
		if delete(s.bindings[b.Policy], b.Name); len(s.bindings[b.Policy]) == 0 {
			delete(s.bindings, b.Policy)
		}
		changed = append(changed, b.Policy)
	}
	if after != nil {
		b := s.kinds.Binding(after)
		if s.bindings[b.Policy] == nil {
			s.bindings[b.Policy] = map[string]*Binding{}
		}
		s.bindings[b.Policy][b.Name] = &b
		changed = append(changed, b.Policy)
	}
	for _, name := range changed {
		s.bind(name)
	}
	s.reindex()
}

// bind gives a policy its bindings. Requests may be reading the old hook: it is replaced.
func (s *Source[E]) bind(policy string) {
	entry := s.policies[policy]
	if entry == nil {
		return
	}
	hook := *entry.hook
	hook.Bindings = make([]*Binding, 0, len(s.bindings[policy]))
	for _, b := range s.bindings[policy] {
		hook.Bindings = append(hook.Bindings, b)
	}
	slices.SortFunc(hook.Bindings, func(a, b *Binding) int { return strings.Compare(a.Name, b.Name) })
	entry.hook = &hook
}

// reindex replaces the index by one of the policies that have bindings.
func (s *Source[E]) reindex() {
	var hooks []*Hook[E]
	for _, entry := range s.policies {
		if len(entry.hook.Bindings) > 0 {
			hooks = append(hooks, entry.hook)
		}
	}
	if len(hooks) == 0 {
		s.index.Store(nil)
		return
	}
	slices.SortFunc(hooks, func(a, b *Hook[E]) int { return strings.Compare(a.Name, b.Name) })
	s.index.Store(&index[E]{hooks: hooks})
}

// Hooks returns the policies that may apply to a write, sorted by name.
func (s *Source[E]) Hooks(a *admission.Attributes) []*Hook[E] {
	index := s.index.Load()
	if index == nil || exempt(a) {
		return nil
	}
	return index.candidates(a, s.Equivalent)
}

// index finds the policies that may apply to a write by its resource, subresource and operation. What it found it keeps.
type index[E any] struct {
	hooks []*Hook[E]
	found sync.Map // of target to []*Hook[E]
	kept  atomic.Int64
}

type target struct {
	info        *catalog.Info
	subresource string
	operation   admission.Operation
}

// maxTargets bounds what an index keeps. A server with a thousand custom resources has fewer targets that are written.
const maxTargets = 8192

func (x *index[E]) candidates(a *admission.Attributes, equivalent func(*admission.Attributes) []*catalog.Info) []*Hook[E] {
	key := target{a.Info, a.Subresource, a.Operation}
	if found, ok := x.found.Load(key); ok {
		return found.([]*Hook[E])
	}
	others := equivalent(a)
	var found []*Hook[E]
	for _, h := range x.hooks {
		if h.Criteria.MayMatch(a.Info, others, a.Subresource, a.Operation) {
			found = append(found, h)
		}
	}
	if x.kept.Add(1) <= maxTargets {
		x.found.Store(key, found)
	}
	return found
}
