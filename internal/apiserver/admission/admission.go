// Package admission is the last word on writes: a chain of small plugins that may change an object or refuse it. First all that
// change are asked, in order, then, when the object is as it will be stored, all that only check. One refusal ends the request.
//
// Each plugin has a folder of its own; their order is one list, in the API server.
package admission

import (
	"context"

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

// Plugin is a member of the chain. It is also a Mutator or a Validator, or both.
type Plugin interface {
	Name() string
	Handles(Operation) bool
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
	stage string // its name in traces
}

// NewChain makes a chain.
func NewChain(plugins ...Plugin) Chain {
	var c Chain
	for _, p := range plugins {
		c = append(c, link{p, "admission/" + p.Name()})
	}
	return c
}

// Admit asks every plugin that may change the object. stage is told what comes next, for traces.
func (c Chain) Admit(ctx context.Context, a *Attributes, stage func(string)) error {
	for _, p := range c {
		if m, ok := p.Plugin.(Mutator); ok && p.Handles(a.Operation) {
			stage(p.stage)
			if err := m.Admit(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate asks every plugin that checks.
func (c Chain) Validate(ctx context.Context, a *Attributes, stage func(string)) error {
	for _, p := range c {
		if v, ok := p.Plugin.(Validator); ok && p.Handles(a.Operation) {
			stage(p.stage)
			if err := v.Validate(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}
