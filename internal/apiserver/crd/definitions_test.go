package crd_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apiserver/crd"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog/custom"
)

var resource = apiextensionsv1.Resource("customresourcedefinitions")

// host records what it is asked to serve. It fails as often as failures says, and has objects that remain for some calls of DeleteObjects.
type host struct {
	mu                  sync.Mutex
	failures, remaining int
	serving             map[string]bool
	withdrawn           int
}

func (h *host) Serve(_ context.Context, resources ...*custom.Resource) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures > 0 {
		h.failures--
		return errors.New("the store does not answer")
	}
	for _, r := range resources {
		h.serving[r.Definition().Name] = true
	}
	return nil
}

func (h *host) Withdraw(_ context.Context, r *custom.Resource) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.serving, r.Definition().Name)
	h.withdrawn++
	return nil
}

func (h *host) Overlaps(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Spec.Names.Plural == "builtins"
}

func (h *host) DeleteObjects(context.Context, *custom.Resource) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remaining--
	return max(h.remaining, 0), nil
}

func (h *host) serves(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.serving[name]
}

// state returns what the host has counted.
func (h *host) state() (failures, remaining, withdrawn int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failures, h.remaining, h.withdrawn
}

// fixture is a loop at work.
type fixture struct {
	*objectstest.Store
	t    *testing.T
	host *host
}

func start(t *testing.T, h *host, existing ...*apiextensionsv1.CustomResourceDefinition) *fixture {
	h.serving = map[string]bool{}
	f := &fixture{objectstest.New(), t, h}
	for _, d := range existing {
		f.Put(resource, d)
	}
	ctx, stop := context.WithCancel(t.Context())
	loop := crd.New(ctx, f.Store, h, nil, slog.New(slog.DiscardHandler))
	_ = loop.Start(ctx) // Run tries again
	var running sync.WaitGroup
	running.Go(func() { loop.Run(ctx) })
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return f
}

func (f *fixture) get(name string) *apiextensionsv1.CustomResourceDefinition {
	d, _ := f.Get(resource, "", name).(*apiextensionsv1.CustomResourceDefinition)
	return d
}

func (f *fixture) eventually(what string, holds func() bool) {
	f.t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("not %s in 20 s", what)
		}
	}
}

func (f *fixture) has(name string, condition apiextensionsv1.CustomResourceDefinitionConditionType) func() bool {
	return func() bool { return apihelpers.IsCRDConditionTrue(f.get(name), condition) }
}

func definition(plural, kind, uid string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + ".example.com", UID: types.UID(uid), Generation: 1},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: plural[:len(plural)-1], Kind: kind, ListKind: kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}}}}
}

// TestServedBeforeEstablished has the server fail a few times: the definition is established only when its resource is served.
func TestServedBeforeEstablished(t *testing.T) {
	f := start(t, &host{failures: 3})
	f.Put(resource, definition("widgets", "Widget", "1"))
	f.eventually("established", f.has("widgets.example.com", apiextensionsv1.Established))
	if failures, _, _ := f.host.state(); !f.host.serves("widgets.example.com") || failures != 0 {
		t.Error("established and not served")
	}
}

// TestStartFails has the server fail when it serves what was established before: that is tried again.
func TestStartFails(t *testing.T) {
	known := definition("widgets", "Widget", "1")
	known.Status.AcceptedNames = known.Spec.Names
	known.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	f := start(t, &host{failures: 2}, known)
	f.eventually("served", func() bool { return f.host.serves("widgets.example.com") })
}

// TestReplaced replaces a definition by another of its name: the resource of the first is withdrawn.
func TestReplaced(t *testing.T) {
	f := start(t, &host{})
	f.Put(resource, definition("widgets", "Widget", "1"))
	f.eventually("established", f.has("widgets.example.com", apiextensionsv1.Established))
	f.Put(resource, definition("widgets", "Other", "2"))
	f.eventually("withdrawn and established again", func() bool {
		_, _, withdrawn := f.host.state()
		return withdrawn == 1 && f.has("widgets.example.com", apiextensionsv1.Established)() && f.host.serves("widgets.example.com")
	})
	f.Remove(resource, "", "widgets.example.com")
	f.eventually("withdrawn", func() bool { return !f.host.serves("widgets.example.com") })
}

// TestFinalize deletes a definition whose objects take a while to go: the finalizer goes after them.
func TestFinalize(t *testing.T) {
	f := start(t, &host{remaining: 3})
	f.Put(resource, definition("widgets", "Widget", "1"))
	f.eventually("established", f.has("widgets.example.com", apiextensionsv1.Established))
	deleting := f.get("widgets.example.com").DeepCopy()
	now := metav1.Now()
	deleting.DeletionTimestamp, deleting.Finalizers = &now, []string{"example.com/other", apiextensionsv1.CustomResourceCleanupFinalizer}
	f.Put(resource, deleting)
	f.eventually("without objects", func() bool {
		return !apihelpers.CRDHasFinalizer(f.get("widgets.example.com"), apiextensionsv1.CustomResourceCleanupFinalizer)
	})
	d := f.get("widgets.example.com")
	_, remaining, _ := f.host.state()
	if c := apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating); c == nil || c.Status != apiextensionsv1.ConditionFalse || c.Reason != "InstanceDeletionCompleted" ||
		len(d.Finalizers) != 1 || remaining > 0 {
		t.Errorf("condition %+v, finalizers %v, remaining %d", c, d.Finalizers, remaining)
	}
}

// TestOverlapping defines what is built in: it is not served, and its deletion leaves the objects of the built-in resource alone.
func TestOverlapping(t *testing.T) {
	f := start(t, &host{remaining: 3})
	deleting := definition("builtins", "Builtin", "1")
	now := metav1.Now()
	deleting.DeletionTimestamp, deleting.Finalizers = &now, []string{apiextensionsv1.CustomResourceCleanupFinalizer}
	f.Put(resource, deleting)
	f.eventually("let go", func() bool { return len(f.get("builtins.example.com").Finalizers) == 0 })
	_, remaining, _ := f.host.state()
	if c := apihelpers.FindCRDCondition(f.get("builtins.example.com"), apiextensionsv1.Terminating); c.Reason != "OverlappingBuiltInResource" || remaining != 3 || f.host.serves("builtins.example.com") {
		t.Errorf("condition %+v, remaining %d", c, remaining)
	}
}
