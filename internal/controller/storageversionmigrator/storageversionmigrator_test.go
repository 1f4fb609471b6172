package storageversionmigrator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/storageversionmigrator"
	"skiff/internal/store"
	"skiff/internal/store/memory"
)

type migration = storagemigrationv1.StorageVersionMigration

var (
	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// create creates a migration of a resource.
func create(t *testing.T, server *apitest.Server, name string, of metav1.GroupResource) {
	t.Helper()
	_, err := server.Client().StoragemigrationV1().StorageVersionMigrations().Create(t.Context(), &migration{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagemigrationv1.StorageVersionMigrationSpec{Resource: of}}, metav1.CreateOptions{})
	check(t, err)
}

// ended waits until a migration does not run any more, and returns it.
func ended(t *testing.T, server *apitest.Server, name string) (m *migration) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		var err error
		m, err = server.Client().StoragemigrationV1().StorageVersionMigrations().Get(t.Context(), name, metav1.GetOptions{})
		check(t, err)
		if meta.IsStatusConditionFalse(m.Status.Conditions, string(storagemigrationv1.MigrationRunning)) {
			return ""
		}
		return fmt.Sprintf("the end of %s: %+v", name, m.Status)
	})
	return m
}

// succeeded checks that a migration was successful, and returns its conditions, a line each.
func succeeded(t *testing.T, m *migration) {
	t.Helper()
	var got []string
	for _, c := range m.Status.Conditions {
		got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	want := "Running=False MigrationCompleted: Migration completed\nSucceeded=True StorageVersionMigrationSucceeded: Migration completed"
	if strings.Join(got, "\n") != want || m.Status.ResourceVersion == "" {
		t.Errorf("%s ended with resourceVersion %q and\n%s", m.Name, m.Status.ResourceVersion, strings.Join(got, "\n"))
	}
}

// stored returns the value under a key.
func stored(t *testing.T, s store.Store, key string) store.KV {
	t.Helper()
	kv, _, err := s.Get(t.Context(), key)
	check(t, err)
	return kv
}

// The objects of a built-in resource that were stored as JSON are stored as protobuf, and those that are stored so already stay as they are.
func TestEncoding(t *testing.T) {
	s := memory.New(memory.Options{})
	t.Cleanup(func() { s.Close() })
	server := apitest.Start(t, apitest.WithStore(s), apitest.WithServer(func(o *apiserver.Options) { o.StorageJSON = true }))
	maps := func(name string) {
		_, err := server.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": name}}, metav1.CreateOptions{})
		check(t, err)
	}
	const old = 1100 // more than two pages
	for i := range old {
		maps(fmt.Sprintf("old-%d", i))
	}
	server.Restart(apitest.WithServer(func(o *apiserver.Options) { o.StorageJSON = false }))
	maps("new")
	before := stored(t, s, "/registry/configmaps/default/new")
	if kv := stored(t, s, "/registry/configmaps/default/old-7"); !bytes.HasPrefix(kv.Value, []byte("{")) {
		t.Fatalf("not JSON: %q", kv.Value)
	}
	controllertest.Run(t, server, storageversionmigrator.New)
	create(t, server, "maps", metav1.GroupResource{Resource: "configmaps"})
	succeeded(t, ended(t, server, "maps"))
	for i := range old {
		if kv := stored(t, s, fmt.Sprintf("/registry/configmaps/default/old-%d", i)); !bytes.HasPrefix(kv.Value, []byte("k8s\x00")) {
			t.Fatalf("old-%d is not protobuf: %q", i, kv.Value)
		}
	}
	if after := stored(t, s, "/registry/configmaps/default/new"); after.Revision != before.Revision {
		t.Errorf("an object that is stored as it should be was written again")
	}
	cm, err := server.Client().CoreV1().ConfigMaps("default").Get(t.Context(), "old-7", metav1.GetOptions{})
	check(t, err)
	if cm.Data["k"] != "old-7" || len(cm.ManagedFields) != 1 || cm.ManagedFields[0].Manager == "storage-version-migrator-controller" {
		t.Errorf("migrated to %+v", cm)
	}
}

const widgetDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.example.com"},"spec":{
	"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[
	{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}},
	{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	check(t, json.Unmarshal([]byte(text), &obj.Object))
	return obj
}

// The objects of a custom resource are stored in the storage version that its definition has now, and the definition says that they are in no other.
func TestStorageVersion(t *testing.T) {
	s := memory.New(memory.Options{})
	t.Cleanup(func() { s.Close() })
	server := apitest.Start(t, apitest.WithStore(s))
	api, err := dynamic.NewForConfig(server.Config())
	check(t, err)
	_, err = api.Resource(definitions).Create(t.Context(), decoded(t, widgetDefinition), metav1.CreateOptions{})
	check(t, err)
	controllertest.Eventually(t, func() string {
		_, err := api.Resource(widgets).Namespace("default").Create(t.Context(), decoded(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"x":1}}`), metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	const key = "/registry/example.com/widgets/default/a"
	if kv := stored(t, s, key); !bytes.Contains(kv.Value, []byte(`"example.com/v1"`)) {
		t.Fatalf("stored %s", kv.Value)
	}
	_, err = api.Resource(definitions).Patch(t.Context(), "widgets.example.com", types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`), metav1.PatchOptions{})
	check(t, err)
	controllertest.Run(t, server, storageversionmigrator.New)
	create(t, server, "widgets", metav1.GroupResource{Group: "example.com", Resource: "widgets"})
	succeeded(t, ended(t, server, "widgets"))
	if kv := stored(t, s, key); !bytes.Contains(kv.Value, []byte(`"example.com/v2"`)) {
		t.Errorf("stored %s", kv.Value)
	}
	d, err := api.Resource(definitions).Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
	check(t, err)
	if versions, _, _ := unstructured.NestedStringSlice(d.Object, "status", "storedVersions"); len(versions) != 1 || versions[0] != "v2" {
		t.Errorf("storedVersions %v", versions)
	}
	conditions, _, _ := unstructured.NestedSlice(d.Object, "status", "conditions")
	last := conditions[len(conditions)-1].(map[string]any)
	if len(conditions) != 3 || last["type"] != "StorageMigrating" || last["status"] != "False" || last["reason"] != "MigrationSucceeded" || last["message"] != "The migration has succeeded and the stored versions have been updated" {
		t.Errorf("conditions %v", conditions)
	}
}

// An object that is not valid any more fails the migration, which says so; the migration that waited for it goes on.
func TestFailure(t *testing.T) {
	server := apitest.Start(t)
	api, err := dynamic.NewForConfig(server.Config())
	check(t, err)
	_, err = api.Resource(definitions).Create(t.Context(), decoded(t, widgetDefinition), metav1.CreateOptions{})
	check(t, err)
	controllertest.Eventually(t, func() string {
		_, err := api.Resource(widgets).Namespace("default").Create(t.Context(), decoded(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"x":1}}`), metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	_, err = api.Resource(definitions).Patch(t.Context(), "widgets.example.com", types.JSONPatchType, []byte(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/required","value":["must"]},{"op":"add","path":"/spec/versions/1/schema/openAPIV3Schema/required","value":["must"]}]`), metav1.PatchOptions{})
	check(t, err)
	controllertest.Eventually(t, func() string {
		_, err := api.Resource(widgets).Namespace("default").Create(t.Context(), decoded(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b"}}`), metav1.CreateOptions{DryRun: []string{"All"}})
		if apierrors.IsInvalid(err) {
			return ""
		}
		return "the new schema"
	})
	controllertest.Run(t, server, storageversionmigrator.New)
	create(t, server, "first", metav1.GroupResource{Group: "example.com", Resource: "widgets"})
	m := ended(t, server, "first")
	failed := meta.FindStatusCondition(m.Status.Conditions, string(storagemigrationv1.MigrationFailed))
	if failed == nil || failed.Reason != "StorageVersionMigrationFailed" || !strings.HasPrefix(failed.Message, `1/1 not yet migrated. migration encountered unhandled error: Widget.example.com "a" is invalid: `) {
		t.Errorf("ended with %+v", m.Status.Conditions)
	}
	check(t, api.Resource(widgets).Namespace("default").Delete(t.Context(), "a", metav1.DeleteOptions{}))
	create(t, server, "second", metav1.GroupResource{Group: "example.com", Resource: "widgets"})
	create(t, server, "third", metav1.GroupResource{Group: "example.com", Resource: "widgets"})
	succeeded(t, ended(t, server, "second"))
	succeeded(t, ended(t, server, "third"))
}

// A migration of what cannot be written fails at once. The loop runs as its service account, whose role must suffice for every resource.
func TestResources(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, storageversionmigrator.New)
	create(t, server, "bindings", metav1.GroupResource{Resource: "bindings"})
	m := ended(t, server, "bindings")
	if c := meta.FindStatusCondition(m.Status.Conditions, string(storagemigrationv1.MigrationFailed)); c == nil || c.Message != `resource "/v1, Resource=bindings" does not support discovery operations: [update patch list]` {
		t.Errorf("ended with %+v", m.Status.Conditions)
	}
	for name, of := range map[string]metav1.GroupResource{"roles": {Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}, "namespaces": {Resource: "namespaces"},
		"events": {Resource: "events"}, "classes": {Group: "scheduling.k8s.io", Resource: "priorityclasses"}} {
		create(t, server, name, of)
		succeeded(t, ended(t, server, name))
	}
}

// TestVerbs does what the conformance suite does with migrations: they are created, read, patched and updated in every way, and their spec does not change.
func TestVerbs(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, storageversionmigrator.New)
	api := server.Client().StoragemigrationV1().StorageVersionMigrations()
	const (
		labels = `{"metadata":{"labels":{"test.storagemigration.example.com":"test"}}}`
		status = `{"status":{"conditions":[{"type":"TestCondition","status":"True","reason":"TestReason","message":"TestMessage","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`
		head   = `{"apiVersion":"storagemigration.k8s.io/v1","kind":"StorageVersionMigration",`
	)
	for i, c := range []struct {
		as                    types.PatchType
		metadata, statusPatch string
		options               metav1.PatchOptions
	}{
		{types.MergePatchType, labels, status, metav1.PatchOptions{}},
		{types.StrategicMergePatchType, labels, status, metav1.PatchOptions{}},
		{types.ApplyYAMLPatchType, head + labels[1:], head + status[1:], metav1.PatchOptions{FieldManager: "test", Force: new(true)}},
		{types.JSONPatchType, `[{"op":"add","path":"/metadata/labels","value":{"test.storagemigration.example.com":"test"}}]`,
			`[{"op":"add","path":"/status/conditions","value":[{"type":"TestCondition","status":"True","reason":"TestReason","message":"TestMessage","lastTransitionTime":"2026-01-01T00:00:00Z"}]}]`, metav1.PatchOptions{}},
	} {
		name := fmt.Sprintf("m-%d", i)
		create(t, server, name, metav1.GroupResource{Resource: "foo"})
		m, err := api.Patch(t.Context(), name, c.as, []byte(c.metadata), c.options)
		check(t, err)
		if m.Labels["test.storagemigration.example.com"] != "test" {
			t.Errorf("%s: labels %v", c.as, m.Labels)
		}
		m, err = api.Patch(t.Context(), name, c.as, []byte(c.statusPatch), c.options, "status")
		check(t, err)
		if !meta.IsStatusConditionTrue(m.Status.Conditions, "TestCondition") {
			t.Errorf("%s: conditions %v", c.as, m.Status.Conditions)
		}
		if _, err = api.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"resource":{"resource":"bar"}}}`), metav1.PatchOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "field is immutable") {
			t.Errorf("the spec could be changed: %v", err)
		}
		controllertest.Eventually(t, func() string { // the loop writes too
			if m, err = api.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
			m.Labels = map[string]string{"updated": "yes"}
			if _, err = api.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	check(t, api.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "updated=yes"}))
	if list, err := api.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
		t.Errorf("left are %v, %v", list, err)
	}
}
