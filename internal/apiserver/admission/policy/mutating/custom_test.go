package mutating_test

import (
	"maps"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/mutating"
	"skiff/internal/apiserver/admission/policy/validating"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// custom is an object without a Go type of its own, as those of custom resources are. Its protobuf form is not used.
type custom struct {
	catalog.Object // of which only the metadata is used
	fields         map[string]any
}

func newCustom() *custom { return &custom{Object: &corev1.ConfigMap{}} }

func (c *custom) Root() (map[string]any, error) {
	root := maps.Clone(c.fields)
	metadata := map[string]any{"name": c.GetName(), "namespace": c.GetNamespace()}
	if labels := c.GetLabels(); len(labels) > 0 {
		list := map[string]any{}
		for k, v := range labels {
			list[k] = v
		}
		metadata["labels"] = list
	}
	root["apiVersion"], root["kind"], root["metadata"] = "example.com/v1", "Thing", metadata
	return root, nil
}

func (c *custom) SetRoot(root map[string]any, _ bool) ([]string, error) {
	var m struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": root["metadata"]}, &m); err != nil {
		return nil, err
	}
	c.SetName(m.Metadata.Name)
	c.SetNamespace(m.Metadata.Namespace)
	c.SetLabels(m.Metadata.Labels)
	c.fields = map[string]any{"spec": root["spec"]}
	return nil, nil
}

func (c *custom) DeepCopyObject() runtime.Object {
	return &custom{c.Object.DeepCopyObject().(catalog.Object), runtime.DeepCopyJSON(c.fields)}
}

var customInfo = func() *catalog.Info {
	i := &catalog.Info{GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"},
		GVR: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}, Namespaced: true,
		New: func() runtime.Object { return newCustom() }, Default: func(obj runtime.Object) {
			obj.(*custom).fields["spec"].(map[string]any)["defaulted"] = true
		},
		ToStored: func(o catalog.Object) catalog.Object { return o }, FromStored: func(o catalog.Object) catalog.Object { return o }}
	i.Stored = i
	return i
}()

func TestCustomObjects(t *testing.T) {
	store := objectstest.New()
	store.Put(corev1.Resource("namespaces"), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	o := policy.Options{Types: func(schema.GroupVersionKind) managedfields.TypeConverter {
		return managedfields.NewDeducedTypeConverter()
	}}
	chain := admission.NewChain(mutating.New(store, o), validating.New(store, o))
	for _, obj := range []catalog.Object{
		admissiontest.Parse(t, &admissionregistrationv1.MutatingAdmissionPolicy{}, `
metadata: {name: things}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]}
  reinvocationPolicy: Never
  mutations:
  - {patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{spec: Object.spec{replicas: object.spec.replicas + 1}}"}}
  - {patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': object.kind}}]"}}`),
		admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, `
metadata: {name: things}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}]}
  validations: [{expression: "object.spec.replicas < 3 && object.spec.defaulted && object.apiVersion == 'example.com/v1'", message: too many}]`),
	} {
		admissiontest.Info(obj).Default(obj)
		store.Put(admissiontest.Info(obj).GVR.GroupResource(), obj)
	}
	store.Put(admissionregistrationv1.Resource("mutatingadmissionpolicybindings"), &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "things"}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "things"}})
	store.Put(admissionregistrationv1.Resource("validatingadmissionpolicybindings"), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "things"}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "things",
			ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}}})
	for replicas, want := range map[int64]string{1: "", 2: `things.example.com "x" is forbidden: ValidatingAdmissionPolicy 'things' with binding 'things' denied request: too many`} {
		obj := newCustom()
		obj.SetName("x")
		obj.SetNamespace("ns")
		obj.fields = map[string]any{"spec": map[string]any{"replicas": replicas}}
		a := &admission.Attributes{Info: customInfo, Operation: admission.Create, Namespace: "ns", Name: "x", Object: obj, User: authn.Admin(), Warn: func(string) {}}
		err := chain.Admit(t.Context(), a, func(string) {})
		if err == nil {
			err = chain.Validate(t.Context(), a, func(string) {})
		}
		admissiontest.Expect(t, err, want)
		if got := obj.fields["spec"].(map[string]any)["replicas"]; got != replicas+1 || obj.GetLabels()["a"] != "Thing" {
			t.Errorf("replicas %v, labels %v", got, obj.GetLabels())
		}
	}
}
