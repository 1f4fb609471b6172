package crd

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	"skiff/internal/catalog/apiextensions"
	"skiff/internal/catalog/custom"
)

// Host serves custom resources.
type Host interface {
	// Serve serves resources. What was served of each before, by an earlier state of its definition, is replaced.
	Serve(ctx context.Context, resources ...*custom.Resource) error
	// Withdraw ends the service of a resource.
	Withdraw(ctx context.Context, r *custom.Resource) error
	// Overlaps reports whether a built-in resource has the group and the plural name of a definition.
	Overlaps(crd *apiextensionsv1.CustomResourceDefinition) bool
	// DeleteObjects deletes the objects of a resource, and returns how many remain because finalizers hold them or because they are still being created.
	DeleteObjects(ctx context.Context, r *custom.Resource) (remaining int, err error)
}

// dropEvery is how often what was compiled for resources that are not used is released.
const dropEvery = time.Minute

var definitionResource = apiextensionsv1.Resource("customresourcedefinitions")

// Definitions has the custom resources served whose definitions exist.
type Definitions struct {
	objects objects.Store
	host    Host
	// converter makes what converts the objects of definitions with a conversion webhook.
	converter custom.NewConverter
	log       *slog.Logger
	queue     workqueue.TypedRateLimitingInterface[string] // names of definitions
	// served has the resources that are served, by the names of their definitions, and unpublished the names of those whose last change could not be served yet.
	// Only the loop uses them.
	served      map[string]*custom.Resource
	unpublished map[string]bool

	mu    sync.Mutex
	known map[string]*apiextensionsv1.CustomResourceDefinition // all definitions without their versions, which are large when decoded
}

// New returns the loop, which follows the definitions until ctx ends: see objects.Reader.Follow.
func New(ctx context.Context, store objects.Store, host Host, converter custom.NewConverter, log *slog.Logger) *Definitions {
	d := &Definitions{objects: store, host: host, converter: converter, log: log, served: map[string]*custom.Resource{}, unpublished: map[string]bool{}, known: map[string]*apiextensionsv1.CustomResourceDefinition{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	context.AfterFunc(ctx, d.queue.ShutDown)
	store.Follow(definitionResource, func(before, after catalog.Object) {
		if after == nil {
			d.learn(before.GetName(), nil)
			d.queue.Add(before.GetName())
			return
		}
		d.learn(after.GetName(), after.(*apiextensionsv1.CustomResourceDefinition))
		d.queue.Add(after.GetName())
	})
	return d
}

// learn remembers what others must know of a definition; nil says that it is gone.
func (d *Definitions) learn(name string, crd *apiextensionsv1.CustomResourceDefinition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if crd == nil {
		delete(d.known, name)
		return
	}
	brief := *crd
	brief.Spec.Versions, brief.ManagedFields, brief.Annotations = nil, nil, nil
	d.known[name] = brief.DeepCopy()
}

// Start has the resources of all established definitions served, at once. The objects must be readable. Run tries again what failed.
func (d *Definitions) Start(ctx context.Context) error {
	var resources []*custom.Resource
	for _, obj := range d.objects.List(definitionResource, "") {
		if crd := obj.(*apiextensionsv1.CustomResourceDefinition); apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) && !d.host.Overlaps(crd) {
			r := custom.NewResource(crd, d.converter)
			d.served[crd.Name], d.unpublished[crd.Name] = r, true
			resources = append(resources, r)
		}
	}
	if len(resources) == 0 {
		return nil
	}
	err := d.host.Serve(ctx, resources...)
	if err == nil {
		clear(d.unpublished)
	}
	return err
}

// Run reconciles definitions until ctx, that of New, ends.
func (d *Definitions) Run(ctx context.Context) {
	lastDrop := time.Now()
	for {
		name, ended := d.queue.Get()
		if ended {
			return
		}
		after, err := d.reconcile(ctx, name)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			d.log.Warn("failed to reconcile a CustomResourceDefinition", "name", name, "err", err)
			d.queue.AddRateLimited(name)
		default:
			d.queue.Forget(name)
			if after > 0 {
				d.queue.AddAfter(name, after)
			}
		}
		d.queue.Done(name)
		if time.Since(lastDrop) >= dropEvery {
			lastDrop = time.Now()
			d.dropIdle()
		}
	}
}

// dropIdle releases what was compiled for resources that are not used.
func (d *Definitions) dropIdle() {
	for _, r := range d.served {
		r.DropIdle()
	}
}

func (d *Definitions) get(name string) *apiextensionsv1.CustomResourceDefinition {
	crd, _ := d.objects.Get(definitionResource, "", name).(*apiextensionsv1.CustomResourceDefinition)
	return crd
}

// reconcile brings what is served of a definition, and its status, in line with its newest state. It asks to be called again after a time, if that is not zero.
func (d *Definitions) reconcile(ctx context.Context, name string) (after time.Duration, err error) {
	crd := d.get(name)
	if r := d.served[name]; r != nil && (crd == nil || crd.UID != r.Definition().UID) {
		if err := d.host.Withdraw(ctx, r); err != nil {
			return 0, err
		}
		r.Close()
		delete(d.served, name)
		delete(d.unpublished, name)
		d.requeueGroup(r.Definition())
	}
	if crd == nil {
		return 0, nil
	}
	if d.host.Overlaps(crd) {
		return 0, d.finalizeOverlapping(ctx, crd)
	}
	others := d.sameGroup(crd)
	next, differs := apiextensions.Decide(crd, others, true, metav1.Now())
	wanted := *crd
	wanted.Status = next
	if apihelpers.IsCRDConditionTrue(&wanted, apiextensionsv1.Established) {
		if err := d.serve(ctx, &wanted); err != nil { // before the status says so
			return 0, err
		}
	}
	if differs {
		if err := d.writeStatus(ctx, crd, func(newest *apiextensionsv1.CustomResourceDefinition) {
			newest.Status, _ = apiextensions.Decide(newest, others, true, metav1.Now())
		}); err != nil {
			return 0, err
		}
		d.requeueGroup(crd)
	}
	if crd.DeletionTimestamp != nil {
		return d.finalize(ctx, crd)
	}
	return 0, nil
}

// sameGroup returns the other definitions of a definition's group, without their versions.
func (d *Definitions) sameGroup(crd *apiextensionsv1.CustomResourceDefinition) (others []*apiextensionsv1.CustomResourceDefinition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.known {
		if other.Spec.Group == crd.Spec.Group && other.Name != crd.Name {
			others = append(others, other)
		}
	}
	return others
}

// requeueGroup has the other definitions of a group reconciled: names may have become free.
func (d *Definitions) requeueGroup(crd *apiextensionsv1.CustomResourceDefinition) {
	for _, other := range d.sameGroup(crd) {
		if !apihelpers.IsCRDConditionTrue(other, apiextensionsv1.NamesAccepted) {
			d.queue.Add(other.Name)
		}
	}
}

// serve has a definition served as its newest state says.
func (d *Definitions) serve(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	r := d.served[crd.Name]
	switch {
	case r == nil:
		r = custom.NewResource(crd, d.converter)
	case servedAlike(r.Definition(), crd) && !d.unpublished[crd.Name]:
		return nil
	default:
		r.Update(crd)
	}
	d.unpublished[crd.Name] = true
	if err := d.host.Serve(ctx, r); err != nil {
		return err
	}
	delete(d.unpublished, crd.Name)
	d.served[crd.Name] = r
	return nil
}

// servedAlike reports whether two states of a definition are served alike. Its generation counts the changes of its spec.
func servedAlike(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return a.Generation == b.Generation && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		apiequality.Semantic.DeepEqual(a.Status.AcceptedNames, b.Status.AcceptedNames)
}

// writeStatus changes the status of a definition, unless another has taken its name.
func (d *Definitions) writeStatus(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, change func(*apiextensionsv1.CustomResourceDefinition)) error {
	return ignoreGone(d.objects.Update(ctx, definitionResource, "status", "", crd.Name, func(obj catalog.Object) error {
		newest := obj.(*apiextensionsv1.CustomResourceDefinition)
		if newest.UID != crd.UID {
			return errReplaced
		}
		change(newest)
		return nil
	}))
}

var errReplaced = apierrors.NewNotFound(definitionResource, "")

// ignoreGone returns an error unless it says that the definition does not exist any more.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
