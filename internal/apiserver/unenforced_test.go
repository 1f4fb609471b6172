package apiserver_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// TestUnenforced: whoever writes an object that nothing in skiff acts on is told so, by every way to write it, and nobody else is.
func TestUnenforced(t *testing.T) {
	s, objects := start(t), fullObjects(t)
	var unenforced []string
	for _, info := range all.Resources() {
		list := objects[info.GVK]
		if info.Unenforced == "" && info.GVR.Resource != "configmaps" {
			continue
		}
		if len(list) == 0 {
			t.Fatalf("there is no %s in testdata/objects", info.GVK.Kind)
		}
		if info.Unenforced != "" {
			unenforced = append(unenforced, info.GVR.Resource)
		}
		checkUnenforced(t, s, info, list[0])
	}
	slices.Sort(unenforced)
	if want := []string{"networkpolicies"}; !slices.Equal(unenforced, want) {
		t.Errorf("not enforced are %v, want %v", unenforced, want)
	}
}

func checkUnenforced(t *testing.T, s *server, info *catalog.Info, obj object) {
	t.Helper()
	name := metadata(obj)["name"].(string)
	path := pathTo(info, name)
	var want []string
	if info.Unenforced != "" {
		want = []string{`299 - "skiff does not enforce ` + info.Unenforced + ` yet: this object is stored and has no effect"`}
	}
	check := func(what string, a answer, want []string) {
		t.Helper()
		warnings := slices.DeleteFunc(slices.Clone(a.ok().Header["Warning"]), func(w string) bool { return !strings.Contains(w, "skiff does not enforce") })
		if !slices.Equal(warnings, want) {
			t.Errorf("%s of %s is answered with %q, want %q", what, info.GVR.Resource, warnings, want)
		}
	}
	check("a dry run", s.send("POST", collection(info)+"?dryRun=All", obj), want)
	created := s.send("POST", collection(info), obj)
	check("a create", created, want)
	var stored object
	if err := json.Unmarshal(created.Body, &stored); err != nil {
		t.Fatal(err)
	}
	check("an update", s.send("PUT", path, stored), want)
	check("a patch", s.send("PATCH", path, `{"metadata":{"labels":{"x":"y"}}}`, "Content-Type", "application/merge-patch+json"), want)
	apply := object{"apiVersion": info.GVK.GroupVersion().String(), "kind": info.GVK.Kind, "metadata": object{"name": name, "labels": object{"z": "y"}}}
	check("an apply", s.send("PATCH", path+"?fieldManager=test", apply, "Content-Type", "application/apply-patch+yaml"), want)
	check("a get", s.send("GET", path, nil), nil)
	check("a list", s.send("GET", collection(info), nil), nil)
	if info.Status != nil {
		check("a patch of the status", s.send("PATCH", path+"/status", `{"metadata":{"labels":{"s":"t"}}}`, "Content-Type", "application/merge-patch+json"), nil)
	}
	check("a delete", s.send("DELETE", path, nil), nil)
}
