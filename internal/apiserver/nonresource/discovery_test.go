package nonresource

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientdiscovery "k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// custom returns the versions of a custom resource, of which the first is stored.
func custom(group, plural, kind string, versions ...string) []*catalog.Info {
	var infos []*catalog.Info
	for _, version := range versions {
		gv := schema.GroupVersion{Group: group, Version: version}
		info := &catalog.Info{GVK: gv.WithKind(kind), GVR: gv.WithResource(plural), Singular: strings.ToLower(kind), Namespaced: true,
			StorageVersion: versions[0], DiscoveryVerbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}}
		info.Stored = info
		if len(infos) > 0 {
			info.Stored = infos[0]
		}
		infos = append(infos, info)
	}
	return infos
}

// crontabs are the definitions of openapi/custom/testdata/definitions.yaml.
func crontabs() []*catalog.Info {
	crontab := custom("stable.example.com", "crontabs", "CronTab", "v1")
	crontab[0].Short = []string{"ct"}
	crontab[0].Scale = &catalog.ScaleInfo{}
	crontab[0].Edits = []*catalog.EditInfo{{Name: "status", Verbs: []string{"get", "patch", "update"}}}
	owl := custom("stable.example.com", "owls", "Owl", "v1")
	owl[0].Namespaced = false
	owl[0].Edits = crontab[0].Edits
	beta := custom("stable.example.com", "crontabs", "CronTab", "v1beta1")
	return append(append(beta, owl...), crontab...)
}

func newTestHandler(infos []*catalog.Info, aggregated ...Aggregated) *Handler {
	api := &verbs.API{}
	api.Replace(&verbs.Served{Infos: all.Resources()})
	h := New(Options{API: api})
	h.SetServed(append(slices.Clone(all.Resources()), infos...), aggregated)
	return h
}

func (h *Handler) get(t testing.TB, path, accept string, into any) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	if !h.serveDiscovery(w, r) {
		return nil
	}
	if into != nil {
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
			t.Fatalf("%s: %v: %s", path, err, w.Body)
		}
	}
	return w.Result()
}

// order returns the groups, each with its versions, in both documents.
func (h *Handler) order(t testing.TB) (plain, aggregated []string) {
	t.Helper()
	var groups metav1.APIGroupList
	h.get(t, "/apis", "application/json", &groups)
	for _, g := range groups.Groups {
		line := g.Name
		for _, v := range g.Versions {
			line += " " + v.Version
		}
		plain = append(plain, line)
		if g.PreferredVersion != g.Versions[0] || g.Versions[0].GroupVersion != g.Name+"/"+g.Versions[0].Version {
			t.Errorf("%s prefers %v", line, g.PreferredVersion)
		}
		var alone metav1.APIGroup
		h.get(t, "/apis/"+g.Name, "application/json", &alone)
		alone.TypeMeta = metav1.TypeMeta{}
		if !reflect.DeepEqual(g, alone) {
			t.Errorf("/apis/%s is %v, in /apis %v", g.Name, alone, g)
		}
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	h.get(t, "/apis", aggregatedType, &list)
	for _, g := range list.Items {
		line := g.Name
		for _, v := range g.Versions {
			line += " " + v.Version
		}
		aggregated = append(aggregated, line)
	}
	return plain, aggregated
}

// TestOrder compares the order of groups and versions with what upstream prints for the same definitions.
func TestOrder(t *testing.T) {
	// What upstream lists before custom groups, of which skiff serves those that its catalog has.
	builtin := strings.Split(`apiregistration.k8s.io v1,apps v1,events.k8s.io v1,authentication.k8s.io v1,authorization.k8s.io v1,autoscaling v2 v1,batch v1,`+
		`certificates.k8s.io v1,networking.k8s.io v1,policy v1,rbac.authorization.k8s.io v1,storage.k8s.io v1,admissionregistration.k8s.io v1,apiextensions.k8s.io v1,`+
		`scheduling.k8s.io v1,coordination.k8s.io v1,node.k8s.io v1,discovery.k8s.io v1,resource.k8s.io v1,flowcontrol.apiserver.k8s.io v1,storagemigration.k8s.io v1`, ",")
	served := map[string]bool{}
	for _, info := range all.Resources() {
		served[info.GVK.Group] = true
		if !Builtin(info.GVK.GroupVersion()) {
			t.Errorf("%s has no priority", info.GVK.GroupVersion())
		}
	}
	builtin = slices.DeleteFunc(builtin, func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return !served[name]
	})
	infos := crontabs()
	for _, storage := range []string{"v11", "v12", "v14", "v15"} {
		infos = append(infos, custom("g"+storage[2:]+".example.com", "as", "A", "v2", "v1alpha1", storage)...)
	}
	infos = append(infos, custom("g3.example.com", "as", "A", "v1alpha1", "v2")...)
	infos = append(infos, custom("aaa.example.com", "as", "A", "v3alpha1")...)
	slices.Reverse(infos)
	h := newTestHandler(infos)
	plain, aggregated := h.order(t)
	// Of equal priority, the plain document has the name of the APIService as the order, which begins with the version.
	wantPlain := []string{"stable.example.com v1 v1beta1", "g1.example.com v11 v2 v1alpha1", "g2.example.com v12 v2 v1alpha1", "g4.example.com v14 v2 v1alpha1",
		"g5.example.com v15 v2 v1alpha1", "g3.example.com v2 v1alpha1", "aaa.example.com v3alpha1"}
	if want := slices.Concat(builtin, wantPlain); !slices.Equal(plain, want) {
		t.Errorf("/apis is\n%s\nwant\n%s", strings.Join(plain, ","), strings.Join(want, ","))
	}
	wantAggregated := slices.Sorted(slices.Values(wantPlain))
	if want := slices.Concat(builtin, wantAggregated); !slices.Equal(aggregated, want) {
		t.Errorf("aggregated /apis is\n%s\nwant\n%s", strings.Join(aggregated, ","), strings.Join(want, ","))
	}
}

// TestPriorities checks group versions of other servers, and of custom resources in a built-in group.
func TestPriorities(t *testing.T) {
	service := func(group, version string, groupPriority, versionPriority int32) Aggregated {
		return Aggregated{GroupVersion: schema.GroupVersion{Group: group, Version: version}, Priority: Priority{groupPriority, versionPriority},
			Discovery: apidiscoveryv2.APIVersionDiscovery{Freshness: apidiscoveryv2.DiscoveryFreshnessStale}}
	}
	h := newTestHandler(append(custom("b.example.com", "as", "A", "v1", "v2"), custom("networking.k8s.io", "gateways", "Gateway", "v1beta1")...),
		service("first.example.com", "v1", 21000, 1), service("last.example.com", "v1", 100, 100), service("a.example.com", "v1", 1000, 10),
		service("b.example.com", "v1", 1000, 200), service("middle.example.com", "v1", 10, 1), service("middle.example.com", "v1beta1", 17150, 5))
	plain, aggregated := h.order(t)
	for _, document := range [][]string{plain, aggregated} {
		position := func(line string) int { return slices.Index(document, line) }
		if position("first.example.com v1") != 0 || position("last.example.com v1") != len(document)-1 {
			t.Errorf("the first is not first, or the last not last: %q", document)
		}
		// The highest priority of its versions is that of the group, and versions are ordered by their own.
		if n := position("middle.example.com v1beta1 v1"); n != position("policy v1")-1 || n != position("networking.k8s.io v1beta1 v1")+1 {
			t.Errorf("the middle is not in its place: %q", document)
		}
		// The other server serves v1, so it has the priority of that.
		if n := position("b.example.com v1 v2"); n < 0 || n != position("a.example.com v1")+1 {
			t.Errorf("a and b: %q", document)
		}
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	h.get(t, "/apis", aggregatedType, &list)
	for _, g := range list.Items {
		for _, v := range g.Versions {
			stale := strings.HasSuffix(g.Name, ".example.com") && !(g.Name == "b.example.com" && v.Version == "v2")
			if (v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale) != stale || (len(v.Resources) == 0) != stale {
				t.Errorf("%s/%s is %s, with %d resources", g.Name, v.Version, v.Freshness, len(v.Resources))
			}
		}
	}
	if r := h.get(t, "/apis/first.example.com/v1", "application/json", nil); r != nil {
		t.Errorf("the resources of another server are listed: %v", r)
	}
}

// TestCustomResources compares the documents of a group version with upstream's.
func TestCustomResources(t *testing.T) {
	h := newTestHandler(crontabs())
	const verbs, few = `"verbs":["delete","deletecollection","get","list","patch","create","update","watch"]`, `"verbs":["get","patch","update"]`
	want := `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"stable.example.com/v1","resources":[` +
		`{"name":"crontabs","singularName":"crontab","namespaced":true,"kind":"CronTab",` + verbs + `,"shortNames":["ct"],"storageVersionHash":"EdX2FP+L0js="},` +
		`{"name":"crontabs/status","singularName":"","namespaced":true,"kind":"CronTab",` + few + `},` +
		`{"name":"crontabs/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale",` + few + `},` +
		`{"name":"owls","singularName":"owl","namespaced":false,"kind":"Owl",` + verbs + `,"storageVersionHash":"iVy5rskl8FI="},` +
		`{"name":"owls/status","singularName":"","namespaced":false,"kind":"Owl",` + few + `}]}`
	var got json.RawMessage
	h.get(t, "/apis/stable.example.com/v1", "application/json", &got)
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	h.get(t, "/apis", aggregatedType, &list)
	group, err := json.Marshal(list.Items[len(list.Items)-1].Versions[0])
	if err != nil {
		t.Fatal(err)
	}
	kind := func(kind string) string {
		return `"responseKind":{"group":"stable.example.com","version":"v1","kind":"` + kind + `"}`
	}
	want = `{"version":"v1","resources":[{"resource":"crontabs",` + kind("CronTab") + `,"scope":"Namespaced","singularResource":"crontab",` + verbs + `,"shortNames":["ct"],` +
		`"subresources":[{"subresource":"status",` + kind("CronTab") + `,` + few + `},` +
		`{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},` + few + `}]},` +
		`{"resource":"owls",` + kind("Owl") + `,"scope":"Cluster","singularResource":"owl",` + verbs + `,"subresources":[{"subresource":"status",` + kind("Owl") + `,` + few + `}]}],` +
		`"freshness":"Current"}`
	if string(group) != want {
		t.Errorf("aggregated got\n%s\nwant\n%s", group, want)
	}
	if r := httptest.NewRequest("POST", "/apis/stable.example.com/v1", nil); !h.serveDiscovery(httptest.NewRecorder(), r) {
		t.Error("upstream answers any method for custom resources")
	}
}

// TestUnservedStorageVersion checks that resources whose storage version is not served have no storageVersionHash, as upstream.
func TestUnservedStorageVersion(t *testing.T) {
	infos := custom("g.example.com", "as", "A", "v1", "v2")
	hash := func(infos []*catalog.Info) string {
		var list metav1.APIResourceList
		newTestHandler(infos).get(t, "/apis/g.example.com/v2", "application/json", &list)
		return list.APIResources[0].StorageVersionHash
	}
	if got := hash(infos); got == "" {
		t.Error("no storageVersionHash")
	}
	if got := hash(infos[1:]); got != "" {
		t.Errorf("the storageVersionHash of what is not served is %s", got)
	}
}

// TestChanges checks that what has gone disappears, that ETags follow, and that a change costs nothing until somebody asks.
func TestChanges(t *testing.T) {
	h := newTestHandler(nil)
	etag := func() string { return h.get(t, "/apis", aggregatedType, nil).Header.Get("ETag") }
	before := etag()
	builtin := h.parts.versions[schema.GroupVersion{Group: "apps", Version: "v1"}]
	infos := slices.Clone(all.Resources())
	for n := range 1000 {
		infos = append(infos, custom(fmt.Sprintf("g%d.example.com", n), "things", "Thing", "v1")...)
		h.SetServed(slices.Clone(infos), nil)
	}
	if len(h.parts.versions) > 100 {
		t.Error("documents were built though nobody asked")
	}
	with := etag()
	if r := h.get(t, "/apis/g999.example.com/v1", "application/json", nil); r == nil || r.StatusCode != 200 || with == before {
		t.Errorf("the last one is not there: %v, ETag %s", r, with)
	}
	if h.parts.versions[schema.GroupVersion{Group: "apps", Version: "v1"}] != builtin || builtin == nil {
		t.Error("what is built in was made again")
	}
	one := h.parts.versions[schema.GroupVersion{Group: "g1.example.com", Version: "v1"}]
	h.SetServed(slices.Delete(slices.Clone(infos), len(infos)-1, len(infos)), nil)
	if again := etag(); again == with || again == before {
		t.Error("the ETag does not follow a deletion")
	}
	if h.get(t, "/apis/g999.example.com/v1", "application/json", nil) != nil || h.get(t, "/apis/g999.example.com", "application/json", nil) != nil {
		t.Error("what was deleted is there")
	}
	if h.parts.versions[schema.GroupVersion{Group: "g1.example.com", Version: "v1"}] != one {
		t.Error("what has not changed was made again")
	}
	h.SetServed(all.Resources(), nil)
	if again := etag(); again != before || len(h.parts.versions) > 100 {
		t.Error("it is not as it was before")
	}
}

func TestConcurrentDiscovery(t *testing.T) {
	h := newTestHandler(crontabs())
	var requests sync.WaitGroup
	for n := range 8 {
		requests.Go(func() {
			for range 20 {
				h.get(t, "/apis", aggregatedType, nil)
				h.get(t, "/apis/stable.example.com/v1", "application/json", nil)
			}
		})
		requests.Go(func() {
			for range 20 {
				h.SetServed(append(crontabs(), custom(fmt.Sprintf("g%d.example.com", n), "as", "A", "v1")...), nil)
			}
		})
	}
	requests.Wait()
}

// TestClientGoDiscovers reads both forms with client-go.
func TestClientGoDiscovers(t *testing.T) {
	h := newTestHandler(crontabs())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.serveDiscovery(w, r) {
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	for _, legacy := range []bool{false, true} {
		c, err := clientdiscovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		c.UseLegacyDiscovery = legacy
		lists, err := clientdiscovery.ServerPreferredResources(c)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, list := range lists {
			for _, r := range list.APIResources {
				found = found || list.GroupVersion == "stable.example.com/v1" && r.Name == "crontabs" && r.Kind == "CronTab"
			}
		}
		if !found {
			t.Errorf("legacy %v: crontabs are not found in version v1", legacy)
		}
	}
}

func BenchmarkDiscoveryAfterAChange(b *testing.B) {
	infos := slices.Clone(all.Resources())
	for n := range 1000 {
		infos = append(infos, custom(fmt.Sprintf("g%d.example.com", n), "things", "Thing", "v1")...)
	}
	h := newTestHandler(nil)
	b.ReportAllocs()
	for b.Loop() {
		infos = slices.Clone(infos)
		infos[len(infos)-1] = custom("g999.example.com", "things", "Thing", "v1")[0]
		h.SetServed(infos, nil)
		h.documents()
	}
}
