package admission

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/authn"
	"skiff/internal/catalog"
	"skiff/internal/catalog/initializers"
)

// Operation is what a request does to an object.
type Operation string

const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describe a write to admission plugins.
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

	// Initializers are what the object waits for before others see it, and OldInitializers what it has waited for; nil if it is initialized. They are no part of
	// the objects, whose Go types have no place for them. Sent says that a client has named them for a new object, if only to name none.
	Initializers, OldInitializers *initializers.Initializers
	SentInitializers              bool

	// Related are the other resources that serve the same objects, under other group versions.
	Related []*catalog.Info
	// Connection has the options of a CONNECT, such as PodExecOptions; nil for other operations.
	Connection runtime.Object
	// DeleteOptions are the options of a deletion.
	DeleteOptions *metav1.DeleteOptions
	// Origin is the request that the write is a part of; it may be nil.
	Origin Origin
	// Stage begins a stage of the request's trace, for plugins that do several things worth seeing; names must be made once. The chain sets it.
	Stage func(name string)

	reinvocation reinvocation
}

// Origin is a request that admission works for. Its methods may be called by several goroutines.
type Origin interface {
	// AdmissionOptions returns the options of a create or update, with their kind; nil if there are none.
	AdmissionOptions(Operation) runtime.Object
	// Annotate keeps an annotation for the audit log. Plugins call Attributes.AddAnnotation, which checks it.
	Annotate(Annotation)
	// Called records a call of a webhook, or an evaluation of a policy, in the trace of the request.
	Called(*Attributes, Call)
}

// InitializersPlugin is the plugin that says which initializers a new object waits for, and who may change that. Without it nobody can.
const InitializersPlugin = "Initializers"

// Options returns the options of the request with their kind, such as CreateOptions; nil if there are none.
func (a *Attributes) Options() runtime.Object {
	switch {
	case a.DeleteOptions != nil:
		options := *a.DeleteOptions
		options.SetGroupVersionKind(schema.GroupVersionKind{Group: metav1.GroupName, Version: "v1", Kind: "DeleteOptions"})
		return &options
	case a.Origin != nil:
		return a.Origin.AdmissionOptions(a.Operation)
	}
	return nil
}

// Creates reports whether the write creates the object, or changes one that still waits for its initializers: nothing has acted on it, so that plugins
// treat its fields as those of a new object.
func (a *Attributes) Creates() bool {
	return a.Operation == Create || a.Operation == Update && a.OldInitializers != nil && a.Subresource == ""
}

// Is reports whether the write is to the resource or to a subresource of it.
func (a *Attributes) Is(resource schema.GroupResource) bool {
	return a.Info.GVR.Resource == resource.Resource && a.Info.GVR.Group == resource.Group
}

// Forbidden returns the Forbidden error that refuses the write for the reason. A reason that is a Forbidden error already is returned unchanged.
func (a *Attributes) Forbidden(reason error) error {
	if apierrors.IsForbidden(reason) {
		return reason
	}
	return apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Subject(), reason)
}

// Subject returns the name of the object for error texts: a new object may have only a generateName, or not even that.
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
	// Handles reports, by user, resource and operation, whether the plugin applies to a write. It is called for every write and must be
	// cheap; a plugin that does not handle a write does not appear in its trace.
	Handles(*Attributes) bool
}

// Mutator is a plugin that may change Attributes.Object, or refuse the write.
type Mutator interface {
	Admit(ctx context.Context, a *Attributes) error
}

// Validator is a plugin that may refuse the write but not change it.
type Validator interface {
	Validate(ctx context.Context, a *Attributes) error
}

// Chain holds the enabled plugins in the order in which they run.
type Chain []link

type link struct {
	Plugin
	mutator   Mutator   // nil if the plugin is no Mutator
	validator Validator // nil if the plugin is no Validator
	stage     string    // the plugin's name in traces
}

// NewChain returns a chain that runs the plugins in the given order.
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

// Has reports whether a plugin is enabled.
func (c Chain) Has(name string) bool {
	return slices.ContainsFunc(c, func(l link) bool { return l.Name() == name })
}

// Admit runs every Mutator that handles the write, up to the first refusal, and a second time if one of them has called Reinvoke. stage is called with
// the trace name of each before it runs.
func (c Chain) Admit(ctx context.Context, a *Attributes, stage func(string)) error {
	a.Stage = stage
	if err := c.admit(ctx, a, stage); err != nil || !a.reinvocation.wanted {
		return err
	}
	a.reinvocation.begun = true
	return c.admit(ctx, a, stage)
}

func (c Chain) admit(ctx context.Context, a *Attributes, stage func(string)) error {
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

// Validate runs every Validator that handles the write, up to the first refusal. stage is called with the trace name of each before it runs.
func (c Chain) Validate(ctx context.Context, a *Attributes, stage func(string)) error {
	a.Stage = stage
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
