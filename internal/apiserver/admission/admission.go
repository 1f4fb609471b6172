// Package admission is the last word on writes: a chain of small plugins that may change an object or refuse it. First all that
// change are asked, in order, then, when the object is as it will be stored, all that only check. One refusal ends the request.
//
// Each plugin has a folder of its own; their order is one list, in admission/plugins.
package admission

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/catalog"
)

// Operation is what a request does to an object.
type Operation string

const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describe a write.
type Attributes struct {
	Info            *catalog.Info
	Subresource     string
	Operation       Operation
	Namespace, Name string
	Object          catalog.Object // nil on delete
	Old             catalog.Object // nil on create
	User            *authn.User
	DryRun          bool
	Warn            func(string)
}

// Is reports whether the write is to a resource, or to a subresource of it.
func (a *Attributes) Is(resource schema.GroupResource) bool {
	return a.Info.GVR.Resource == resource.Resource && a.Info.GVR.Group == resource.Group
}

// Forbidden is the refusal of the write for a reason. A reason that is such a refusal already is returned as it is.
func (a *Attributes) Forbidden(reason error) error {
	if apierrors.IsForbidden(reason) {
		return reason
	}
	return apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Subject(), reason)
}

// Subject is what a refusal calls the object: a new one may have no more than the beginning of a name.
func (a *Attributes) Subject() string {
	switch {
	case a.Name != "":
		return a.Name
	case a.Object != nil && a.Object.GetName() != "":
		return a.Object.GetName()
	case a.Object != nil && a.Object.GetGenerateName() != "":
		return a.Object.GetGenerateName()
	default:
		return "Unknown"
	}
}

// Plugin is a member of the chain. It is also a Mutator or a Validator, or both.
type Plugin interface {
	Name() string
	// Handles says, by who writes what with which operation, whether the plugin looks at a write at all. It is asked for every write
	// and costs next to nothing; what it turns down is not in the traces either.
	Handles(*Attributes) bool
}

// Mutator may change Attributes.Object.
type Mutator interface {
	Admit(ctx context.Context, a *Attributes) error
}

// Validator may only refuse.
type Validator interface {
	Validate(ctx context.Context, a *Attributes) error
}

// Chain is the plugins in order.
type Chain []link

type link struct {
	Plugin
	mutator   Mutator   // nil if it changes nothing
	validator Validator // nil if it checks nothing
	stage     string    // its name in traces
}

// NewChain makes a chain.
func NewChain(plugins ...Plugin) Chain {
	var c Chain
	for _, p := range plugins {
		l := link{Plugin: p, stage: "admission/" + p.Name()}
		l.mutator, _ = p.(Mutator)
		l.validator, _ = p.(Validator)
		c = append(c, l)
	}
	return c
}

// Admit asks every plugin that may change the object. stage is told what comes next, for traces.
func (c Chain) Admit(ctx context.Context, a *Attributes, stage func(string)) error {
	for i := range c {
		if p := &c[i]; p.mutator != nil && p.Handles(a) {
			stage(p.stage)
			if err := p.mutator.Admit(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate asks every plugin that checks.
func (c Chain) Validate(ctx context.Context, a *Attributes, stage func(string)) error {
	for i := range c {
		if p := &c[i]; p.validator != nil && p.Handles(a) {
			stage(p.stage)
			if err := p.validator.Validate(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}
