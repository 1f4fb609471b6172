package mutating

import (
	"skiff/internal/apiserver/admission"
	"skiff/internal/catalog"
)

// reinvocation says which invocations run again when the chain runs a second time.
type reinvocation struct {
	ran, due map[key]bool   // of policies that may run again: those that have run, and those that are to run in the second run
	output   catalog.Object // the object when the plugin was done with it
}

// key identifies an invocation.
type key struct{ policy, binding, paramNamespace, param string }

func (i *invocation) key() key {
	k := key{policy: i.hook.Name, binding: i.binding.Name}
	if i.param != nil {
		k.paramNamespace, k.param = i.param.Namespace, i.param.Name
	}
	return k
}

// recall returns the state of the first run of the plugin on the write.
func recall(a *admission.Attributes) *reinvocation {
	if r, ok := a.Recall(Name).(*reinvocation); ok {
		return r
	}
	r := &reinvocation{ran: map[key]bool{}, due: map[key]bool{}}
	a.Remember(Name, r)
	return r
}

// begin finds out in a second run whether others have changed the object since the first.
func (r *reinvocation) begin(a *admission.Attributes) {
	if a.Reinvoked() && !same(r.output, a.Object) {
		r.objectChanged()
	}
}

func same(a, b catalog.Object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return admission.Same(a, b)
}

// end keeps the object as it is.
func (r *reinvocation) end(a *admission.Attributes) {
	if a.Object == nil {
		r.output = nil
		return
	}
	r.output = a.Object.DeepCopyObject().(catalog.Object)
}

// objectChanged makes all invocations that have run due again. As upstream, that includes the one that has changed the object last.
func (r *reinvocation) objectChanged() {
	for k := range r.ran {
		r.due[k] = true
	}
	clear(r.ran)
}
