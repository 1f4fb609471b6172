package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
)

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	crontabs    = "/apis/stable.example.com/v1/namespaces/default/crontabs"
)

// cronTabs is a definition with two versions, all subresources, a default, a rule and columns.
const cronTabs = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"crontabs.stable.example.com"},"spec":{
	"group":"stable.example.com","scope":"Namespaced","names":{"plural":"crontabs","singular":"crontab","kind":"CronTab","shortNames":["ct"],"categories":["all"]},
	"versions":[{"name":"v1","served":true,"storage":true,
		"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas","labelSelectorPath":".status.selector"}},
		"additionalPrinterColumns":[{"name":"Spec","type":"string","jsonPath":".spec.cronSpec"},{"name":"Replicas","type":"integer","jsonPath":".spec.replicas"}],
		"selectableFields":[{"jsonPath":".spec.cronSpec"}],
		"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"spec":{"type":"object","required":["cronSpec"],"x-kubernetes-validations":[{"rule":"self.replicas <= 10","message":"at most ten"}],
				"properties":{"cronSpec":{"type":"string"},"image":{"type":"string","default":"busybox"},"replicas":{"type":"integer","minimum":0,"default":1},
					"tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}}},
			"status":{"type":"object","properties":{"replicas":{"type":"integer"},"selector":{"type":"string"}}}}}}},
	{"name":"v1beta1","served":true,"storage":false,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// define creates a definition and waits until it is established.
func (s *server) define(text string) *apiextensionsv1.CustomResourceDefinition {
	s.t.Helper()
	crd := into[apiextensionsv1.CustomResourceDefinition](s.send("POST", definitions, text).ok())
	s.eventually("established", func() bool {
		crd = into[apiextensionsv1.CustomResourceDefinition](s.send("GET", definitions+"/"+crd.Name, nil).ok())
		return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established)
	})
	return crd
}

// eventually waits until a condition holds.
func (s *server) eventually(what string, holds func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("not %s in 20 s", what)
		}
	}
}

// TestRatchetedRule tightens the rule of a definition: objects that break it can still be updated elsewhere, with a warning.
func TestRatchetedRule(t *testing.T) {
	s := start(t)
	s.define(cronTabs)
	s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a"},"spec":{"cronSpec":"x","replicas":7}}`).ok()
	tightened := strings.NewReplacer("self.replicas <= 10", "self.replicas <= 5", "at most ten", "at most five").Replace(cronTabs)
	s.send("PATCH", definitions+"/crontabs.stable.example.com", tightened, "Content-Type", "application/merge-patch+json").ok()
	const patch, refusal = "application/merge-patch+json", `CronTab.stable.example.com "a" is invalid: spec: Invalid value: at most five`
	s.eventually("tightened", func() bool {
		return s.send("PATCH", crontabs+"/a?dryRun=All", `{"spec":{"replicas":8}}`, "Content-Type", patch).Code == http.StatusUnprocessableEntity
	})
	if got := s.send("PATCH", crontabs+"/a", `{"spec":{"replicas":8}}`, "Content-Type", patch).refused(422, metav1.StatusReasonInvalid).Message; got != refusal {
		t.Errorf("changed: %s, want %s", got, refusal)
	}
	for _, path := range []string{crontabs + "/a", crontabs + "/a/status"} {
		updated := s.send("PATCH", path, `{"metadata":{"labels":{"x":"y"}},"status":{"replicas":7}}`, "Content-Type", patch)
		updated.ok()
		if got, want := updated.Header.Get("Warning"), `299 - "spec: Invalid value: at most five"`; got != want {
			t.Errorf("%s: warning %s, want %s", path, got, want)
		}
	}
}

// TestCustomResource takes the objects of a definition through every verb.
func TestCustomResource(t *testing.T) {
	s := start(t)
	s.define(cronTabs)
	made := into[object](s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a","labels":{"x":"y"}},
		"spec":{"cronSpec":"* * * * *","unknown":1},"status":{"replicas":7}}`).ok())
	spec := (*made)["spec"].(object)
	if spec["image"] != "busybox" || spec["replicas"] != 1.0 || spec["unknown"] != nil || (*made)["status"] != nil || (*made)["apiVersion"] != "stable.example.com/v1" || (*made)["kind"] != "CronTab" {
		t.Errorf("created %v", *made)
	}
	if g := (*made)["metadata"].(object)["generation"]; g != 1.0 {
		t.Errorf("generation %v", g)
	}
	strict := s.send("POST", crontabs+"?fieldValidation=Strict", `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"b","foo":1},"spec":{"cronSpec":"x","cronSpec":"y","unknown":1}}`).
		refused(400, metav1.StatusReasonBadRequest)
	if want := `strict decoding error: duplicate field "spec.cronSpec", unknown field "metadata.foo", unknown field "spec.unknown"`; !strings.HasSuffix(strict.Message, want) {
		t.Errorf("strict: %s", strict.Message)
	}
	invalid := s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"b"},"spec":{"replicas":-1}}`).refused(422, metav1.StatusReasonInvalid)
	if want := `CronTab.stable.example.com "b" is invalid: [spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, spec.cronSpec: Required value, .spec.replicas: Invalid value: -1: should be a non-negative integer, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]`; invalid.Message != want {
		t.Errorf("invalid: %s", invalid.Message)
	}
	rule := s.send("PATCH", crontabs+"/a", `{"spec":{"replicas":11}}`, "Content-Type", "application/merge-patch+json").refused(422, metav1.StatusReasonInvalid)
	if !strings.Contains(rule.Message, "at most ten") {
		t.Errorf("rule: %s", rule.Message)
	}
	patched := into[object](s.send("PATCH", crontabs+"/a", `{"spec":{"replicas":3},"status":{"replicas":9}}`, "Content-Type", "application/merge-patch+json").ok())
	if (*patched)["metadata"].(object)["generation"] != 2.0 || (*patched)["status"] != nil {
		t.Errorf("patched %v", *patched)
	}
	s.send("PATCH", crontabs+"/a", `{}`, "Content-Type", "application/strategic-merge-patch+json").refused(415, metav1.StatusReasonUnsupportedMediaType)
	status := into[object](s.send("PATCH", crontabs+"/a/status", `{"metadata":{"labels":{"x":"z"}},"spec":{"replicas":5},"status":{"replicas":2,"selector":"a=b"}}`, "Content-Type", "application/merge-patch+json").ok())
	if (*status)["metadata"].(object)["generation"] != 2.0 || (*status)["spec"].(object)["replicas"] != 3.0 || (*status)["status"].(object)["replicas"] != 2.0 ||
		(*status)["metadata"].(object)["labels"].(object)["x"] != "y" {
		t.Errorf("status %v", *status)
	}
	scale := into[object](s.send("PATCH", crontabs+"/a/scale", `{"spec":{"replicas":4}}`, "Content-Type", "application/merge-patch+json").ok())
	if fmt.Sprint((*scale)["spec"], (*scale)["status"]) != "map[replicas:4] map[replicas:2 selector:a=b]" {
		t.Errorf("scale %v", *scale)
	}
	applied := into[object](s.send("PATCH", crontabs+"/a?fieldManager=me&force=true", "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: a}\nspec: {image: nginx, tags: [one]}\n",
		"Content-Type", "application/apply-patch+yaml").ok())
	if (*applied)["spec"].(object)["image"] != "nginx" || len((*applied)["metadata"].(object)["managedFields"].([]any)) < 2 {
		t.Errorf("applied %v", *applied)
	}
	conflict := s.send("PATCH", crontabs+"/a?fieldManager=other", "apiVersion: stable.example.com/v1\nkind: CronTab\nmetadata: {name: a}\nspec: {image: other, tags: [two]}\n",
		"Content-Type", "application/apply-patch+yaml").refused(409, metav1.StatusReasonConflict)
	if want := `Apply failed with 1 conflict: conflict with "me": .spec.image`; conflict.Message != want {
		t.Errorf("conflict: %s", conflict.Message)
	}
	list := into[metav1.PartialObjectMetadataList](s.send("GET", crontabs+"?fieldSelector=spec.cronSpec%3D"+"*%20*%20*%20*%20*", nil).ok())
	if len(list.Items) != 1 || list.Kind != "CronTabList" {
		t.Errorf("listed %+v", list)
	}
	if none := into[metav1.PartialObjectMetadataList](s.send("GET", crontabs+"?fieldSelector=spec.cronSpec%3Dx", nil).ok()); len(none.Items) != 0 {
		t.Errorf("selected %+v", none)
	}
	s.send("GET", crontabs+"?fieldSelector=spec.image%3Dx", nil).refused(400, metav1.StatusReasonBadRequest)
	table := into[metav1.Table](s.send("GET", crontabs, nil, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").ok())
	if len(table.ColumnDefinitions) != 3 || fmt.Sprint(table.Rows[0].Cells) != "[a * * * * * 4]" {
		t.Errorf("table %+v", table)
	}
	if a := s.send("GET", crontabs, nil, "Accept", "application/vnd.kubernetes.protobuf"); a.Code != http.StatusNotAcceptable {
		t.Errorf("as protobuf: %d %s", a.Code, a.Body)
	}
	if a := s.send("GET", crontabs, nil, "Accept", "application/vnd.kubernetes.protobuf,application/json").ok(); a.Header.Get("Content-Type") != "application/json" {
		t.Errorf("as protobuf or JSON: %s", a.Header.Get("Content-Type"))
	}
	if a := s.send("GET", crontabs, nil, "Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").ok(); a.Header.Get("Content-Type") != "application/vnd.kubernetes.protobuf" {
		t.Errorf("metadata as protobuf: %s", a.Header.Get("Content-Type"))
	}
	beta := s.send("GET", strings.Replace(crontabs, "v1", "v1beta1", 1)+"/a", nil).ok()
	if got := into[object](beta); (*got)["apiVersion"] != "stable.example.com/v1beta1" || (*got)["spec"].(object)["image"] != "nginx" {
		t.Errorf("v1beta1: %v", *got)
	}
	if w := beta.Header.Get("Warning"); !strings.Contains(w, "stable.example.com/v1beta1 CronTab is deprecated; use stable.example.com/v1 CronTab") {
		t.Errorf("warning %q", w)
	}
	groups := into[metav1.APIResourceList](s.send("GET", "/apis/stable.example.com/v1", nil).ok())
	if len(groups.APIResources) != 3 {
		t.Errorf("discovery %+v", groups)
	}
}

// TestDefinitionDeleted deletes a definition: its objects go first, watches end, and a new one of the name starts empty.
func TestDefinitionDeleted(t *testing.T) {
	s := start(t)
	first := s.define(cronTabs)
	s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a","finalizers":["example.com/hold"]},"spec":{"cronSpec":"x"}}`).ok()
	version := into[metav1.PartialObjectMetadataList](s.send("GET", crontabs, nil).ok()).ResourceVersion
	watched := make(chan answer)
	go func() { watched <- s.send("GET", crontabs+"?watch=1&timeoutSeconds=30&resourceVersion="+version, nil) }()
	s.send("DELETE", definitions+"/"+first.Name, nil).ok()
	s.eventually("terminating", func() bool {
		a := into[metav1.PartialObjectMetadata](s.send("GET", crontabs+"/a", nil).ok())
		return a.DeletionTimestamp != nil
	})
	s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"b"},"spec":{"cronSpec":"x"}}`).refused(http.StatusForbidden, metav1.StatusReasonForbidden)
	s.send("PATCH", crontabs+"/a", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json").ok()
	s.eventually("gone", func() bool { return s.send("GET", definitions+"/"+first.Name, nil).Code == 404 })
	s.eventually("withdrawn", func() bool { return s.send("GET", crontabs, nil).Code == 404 })
	var types []string
	for line := range strings.Lines(string((<-watched).Body)) {
		var event struct{ Type string }
		if err := json.Unmarshal([]byte(line), &event); err != nil {
			t.Fatal(err)
		}
		types = append(types, event.Type)
	}
	if len(types) < 2 || types[len(types)-1] != "DELETED" {
		t.Errorf("watched %v", types)
	}
	if again := s.define(cronTabs); again.UID == first.UID {
		t.Error("the new definition has the UID of the old")
	}
	if list := into[metav1.PartialObjectMetadataList](s.send("GET", crontabs, nil).ok()); len(list.Items) != 0 {
		t.Errorf("the new definition has %d objects", len(list.Items))
	}
}

// TestSchemaChanges changes a schema: stored objects get new defaults and lose removed fields when they are read.
func TestSchemaChanges(t *testing.T) {
	s := start(t)
	s.define(cronTabs)
	s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a"},"spec":{"cronSpec":"x","tags":["t"]}}`).ok()
	changed := strings.Replace(cronTabs, `"image":{"type":"string","default":"busybox"}`, `"image":{"type":"string"},"added":{"type":"string","default":"new"}`, 1)
	changed = strings.Replace(changed, `"tags":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"}`, `"other":{"type":"string"}`, 1)
	s.send("PATCH", definitions+"/crontabs.stable.example.com", changed, "Content-Type", "application/merge-patch+json").ok()
	read := func() object { return (*into[object](s.send("GET", crontabs+"/a", nil).ok()))["spec"].(object) }
	s.eventually("defaulted", func() bool { return read()["added"] == "new" })
	if spec := read(); spec["tags"] != nil || spec["image"] != "busybox" {
		t.Errorf("read %v", spec)
	}
	list := into[struct{ Items []object }](s.send("GET", crontabs, nil).ok())
	if spec := list.Items[0]["spec"].(object); spec["added"] != "new" || spec["tags"] != nil {
		t.Errorf("listed %v", spec)
	}
}

// TestDefinitionNameConflict defines two kinds with the same short name: the second is not accepted until the first has gone.
func TestDefinitionNameConflict(t *testing.T) {
	s := start(t)
	s.define(cronTabs)
	second := strings.NewReplacer("crontabs", "clocks", "crontab", "clock", "CronTab", "Clock").Replace(cronTabs)
	s.send("POST", definitions, second).ok()
	condition := func(kind apiextensionsv1.CustomResourceDefinitionConditionType) *apiextensionsv1.CustomResourceDefinitionCondition {
		return apihelpers.FindCRDCondition(into[apiextensionsv1.CustomResourceDefinition](s.send("GET", definitions+"/clocks.stable.example.com", nil).ok()), kind)
	}
	s.eventually("judged", func() bool { return condition(apiextensionsv1.NamesAccepted) != nil })
	if c := condition(apiextensionsv1.NamesAccepted); c.Status != apiextensionsv1.ConditionFalse || c.Reason != "ShortNamesConflict" || c.Message != `"ct" is already in use` {
		t.Errorf("names: %+v", c)
	}
	if a := s.send("GET", strings.Replace(crontabs, "crontabs", "clocks", 1), nil); a.Code != http.StatusNotFound {
		t.Errorf("what is not served is answered with %d: %s", a.Code, a.Body)
	}
	s.send("DELETE", definitions+"/crontabs.stable.example.com", nil).ok()
	s.eventually("accepted", func() bool { return condition(apiextensionsv1.Established).Status == apiextensionsv1.ConditionTrue })
	s.send("GET", strings.Replace(crontabs, "crontabs", "clocks", 1), nil).ok()
}

// TestWatchOutlivesDefinitionChange watches objects while their definition changes: the watch goes on.
func TestWatchOutlivesDefinitionChange(t *testing.T) {
	s := start(t)
	s.define(cronTabs)
	version := into[metav1.PartialObjectMetadataList](s.send("GET", crontabs, nil).ok()).ResourceVersion
	watched := make(chan answer)
	go func() { watched <- s.send("GET", crontabs+"?watch=1&timeoutSeconds=3&resourceVersion="+version, nil) }()
	s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a"},"spec":{"cronSpec":"x"}}`).ok()
	s.send("PATCH", definitions+"/crontabs.stable.example.com", strings.Replace(cronTabs, `"default":"busybox"`, `"default":"other"`, 1), "Content-Type", "application/merge-patch+json").ok()
	s.eventually("changed", func() bool {
		made := into[object](s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"generateName":"b-"},"spec":{"cronSpec":"x"}}`).ok())
		return (*made)["spec"].(object)["image"] == "other"
	})
	body := string((<-watched).Body)
	if !strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"image":"other"`) || strings.Contains(body, "ERROR") {
		t.Errorf("watched %s", body)
	}
}

// TestCustomResourceRestart starts a second server on the store of a first: definitions and objects are served as soon as it is ready.
func TestCustomResourceRestart(t *testing.T) {
	s := start(t, func(o *apiserver.Options) { o.Store = unclosedStore{o.Store} })
	s.define(cronTabs)
	s.send("POST", crontabs, `{"apiVersion":"stable.example.com/v1","kind":"CronTab","metadata":{"name":"a"},"spec":{"cronSpec":"x"}}`).ok()
	before := s.send("GET", crontabs+"/a", nil).ok()
	again := start(t, func(o *apiserver.Options) { o.Store = s.store })
	if after := again.send("GET", crontabs+"/a", nil).ok(); string(after.Body) != string(before.Body) {
		t.Errorf("before %s\nafter  %s", before.Body, after.Body)
	}
	kv, _, err := s.store.Get(t.Context(), "/registry/stable.example.com/crontabs/default/a")
	if err != nil || !json.Valid(kv.Value) || !strings.Contains(string(kv.Value), `"apiVersion":"stable.example.com/v1"`) {
		t.Errorf("stored as %s, %v", kv.Value, err)
	}
}

// TestManyDefinitions creates definitions one after the other: all are established, and listed by discovery and OpenAPI.
func TestManyDefinitions(t *testing.T) {
	s := start(t)
	const many = 100
	for n := range many {
		name := fmt.Sprintf("thing%d", n)
		text := strings.NewReplacer("crontabs", name+"s", "crontab", name, "CronTab", fmt.Sprintf("Thing%d", n), `"ct"`, fmt.Sprintf(`"t%d"`, n)).Replace(cronTabs)
		s.send("POST", definitions, text).ok()
	}
	s.eventually("served", func() bool {
		return len(into[metav1.APIResourceList](s.send("GET", "/apis/stable.example.com/v1", nil)).APIResources) == 3*many
	})
	if a := s.send("GET", "/openapi/v3/apis/stable.example.com/v1", nil).ok(); strings.Count(string(a.Body), "com.example.stable.v1.Thing99\"") == 0 {
		t.Error("OpenAPI does not have the last definition")
	}
}
