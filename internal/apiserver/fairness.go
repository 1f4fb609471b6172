package apiserver

import (
	"context"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/flowcontrol"
	flowconfig "skiff/internal/apiserver/flowcontrol/config"
	"skiff/internal/apiserver/front"
	"skiff/internal/apiserver/registry"
	"skiff/internal/catalog"
)

// newFlowControl returns flow control. With priority and fairness it follows the objects that configure it.
func (s *Server) newFlowControl() *flowcontrol.Controller {
	flow := front.NewFlowControl(front.FlowOptions{API: s.api, ReadOnly: s.opts.MaxInFlight, Mutating: s.opts.MaxMutatingInFlight, Unfair: s.opts.NoFairness})
	if !s.opts.NoFairness {
		s.fairness = flowconfig.New(flowconfig.Options{Store: fairnessStore{s.loopback}, Controller: flow, RestoreEvery: s.opts.FairnessRestoreEvery, Log: s.opts.Log})
	}
	return flow
}

// beginFairness applies the objects that configure flow control, and then what becomes of them. Their followers must have synced.
func (s *Server) beginFairness() {
	if s.fairness != nil {
		s.fairness.Sync()
		s.background.Go(func() { s.fairness.Run(s.stopping) })
	}
}

// fairnessStore reads and writes the objects that configure flow control.
type fairnessStore struct{ *loopback }

// ApplyStatus applies the status of a FlowSchema as a field manager.
func (f fairnessStore) ApplyStatus(ctx context.Context, name, manager string, status *flowcontrolv1.FlowSchemaStatus) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return err
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": flowcontrolv1.SchemeGroupVersion.String(), "kind": "FlowSchema",
		"metadata": map[string]any{"name": name}, "status": fields}}
	end := f.resources[flowcontrolv1.Resource("flowschemas")]
	managed, err := end.Manager("status")
	if err != nil {
		return err
	}
	_, _, err = end.Registry.Update(ctx, registry.Update{Name: name, Edit: end.Edit("status"), Write: loopbackWrite(),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			return managed.Apply(current, applied.DeepCopy(), manager, true)
		}})
	return err
}

// CreateAs is Create as a field manager.
func (f fairnessStore) CreateAs(ctx context.Context, manager string, obj catalog.Object) error {
	return f.server.createObjectAs(ctx, manager, obj)
}

// UpdateAs is Update as a field manager.
func (f fairnessStore) UpdateAs(ctx context.Context, resource schema.GroupResource, manager, name string, change func(catalog.Object) error) error {
	end := f.resources[resource]
	managed, err := end.Manager("")
	if err != nil {
		return err
	}
	_, _, err = end.Registry.Update(ctx, registry.Update{Name: name, Write: loopbackWrite(),
		Transform: func(_ context.Context, current catalog.Object) (catalog.Object, error) {
			live := current.DeepCopyObject().(catalog.Object)
			if err := change(current); err != nil {
				return nil, err
			}
			managed.Update(live, current, manager)
			return current, nil
		}})
	return err
}
