package aggregation_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

func gvr(plural string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}
}

// discovered returns what the aggregated form of discovery says of a group version; nil if nothing.
func (c *cluster) discovered(group, version string) *apidiscoveryv2.APIVersionDiscovery {
	c.t.Helper()
	var list apidiscoveryv2.APIGroupDiscoveryList
	c.decode("/apis", &list, "Accept", acceptAggregated)
	for _, g := range list.Items {
		for i, v := range g.Versions {
			if g.Name == group && v.Version == version {
				return &g.Versions[i]
			}
		}
	}
	return nil
}

// awaitFreshness waits until discovery says how fresh it is about the group version of an APIService.
func (c *cluster) awaitFreshness(name string, freshness apidiscoveryv2.DiscoveryFreshness) {
	c.t.Helper()
	version, group, _ := strings.Cut(name, ".")
	c.eventually(func() string {
		if d := c.discovered(group, version); d == nil || d.Freshness != freshness {
			return fmt.Sprintf("discovery of %s to be %s: %+v", name, freshness, d)
		}
		return ""
	})
}

// check has the server of an APIService checked now.
func (c *cluster) check(slice string) {
	c.t.Helper()
	c.patch("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/"+slice, `{"metadata":{"annotations":{"check":"`+rand.Text()+`"}}}`)
}

// Both forms of discovery have what other servers serve, whichever form those have themselves. While a server is down, what it said last stays.
func TestDiscovery(t *testing.T) {
	for form, v2 := range map[string]bool{"aggregated": true, "legacy": false} {
		t.Run(form, func(t *testing.T) {
			c := newCluster(t)
			b := c.newBackend("192.0.2.1")
			b.v2 = v2
			c.service("wardle", "192.0.2.1")
			c.create(services, c.apiService(group, "v1", "wardle"))
			c.awaitServed("v1." + group)
			looksAsServed(t, c, apidiscoveryv2.DiscoveryFreshnessCurrent)
			var groups metav1.APIGroup
			if c.decode("/apis/"+group, &groups); groups.PreferredVersion.GroupVersion != group+"/v1" {
				t.Errorf("the group is %+v", groups)
			}
			if mapped, err := c.api.Discovery().ServerResourcesForGroupVersion(group + "/v1"); err != nil || len(mapped.APIResources) == 0 || mapped.APIResources[0].Kind != "Flunder" {
				t.Errorf("a client sees %v, %v", mapped, err)
			}

			c.lead("192.0.2.1:8443", nil)
			b.CloseClientConnections()
			c.check("wardle")
			c.awaitFreshness("v1."+group, apidiscoveryv2.DiscoveryFreshnessStale)
			looksAsServed(t, c, apidiscoveryv2.DiscoveryFreshnessStale)
			c.lead("192.0.2.1:8443", b.Listener)
			c.check("wardle")
			c.awaitFreshness("v1."+group, apidiscoveryv2.DiscoveryFreshnessCurrent)

			c.delete(services + "/v1." + group)
			c.eventually(func() string {
				if d := c.discovered(group, "v1"); d != nil {
					return fmt.Sprintf("the group version to vanish from discovery: %+v", d)
				}
				return ""
			})
			for _, path := range []string{"/apis/" + group, "/apis/" + group + "/v1", flunders} {
				if got := c.get(path); got.code != http.StatusNotFound {
					t.Errorf("GET %s: %d %s", path, got.code, got.body)
				}
			}
		})
	}
}

func looksAsServed(t *testing.T, c *cluster, freshness apidiscoveryv2.DiscoveryFreshness) {
	t.Helper()
	d := c.discovered(group, "v1")
	if d == nil || d.Freshness != freshness || len(d.Resources) != 1 || d.Resources[0].Resource != "flunders" || d.Resources[0].Scope != apidiscoveryv2.ScopeNamespace ||
		d.Resources[0].SingularResource != "flunder" || len(d.Resources[0].Subresources) != 1 || d.Resources[0].Subresources[0].ResponseKind == nil {
		t.Errorf("discovery says %+v", d)
	}
	if c.discovered("other.example.com", "v1") != nil {
		t.Error("discovery has a group version that no APIService names")
	}
	var list metav1.APIGroupList
	if c.decode("/apis", &list); !slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == group }) {
		t.Errorf("the plain form has no %s: %+v", group, list)
	}
}

// Groups are ordered by their priorities, and versions by theirs; equal versions as Kubernetes orders them.
func TestPriorities(t *testing.T) {
	c := newCluster(t)
	for _, one := range []struct {
		group, version string
		inGroup, own   int32
	}{
		{"low.example.com", "v1", 10, 10}, {"high.example.com", "v1", 17900, 10}, // above apps, below the core
		{"mid.example.com", "v1alpha1", 2000, 20}, {"mid.example.com", "v1", 1500, 15}, {"mid.example.com", "v2", 1500, 15}, {"mid.example.com", "v2beta1", 1500, 15},
	} {
		s := c.apiService(one.group, one.version, "none")
		s.Spec.GroupPriorityMinimum, s.Spec.VersionPriority = one.inGroup, one.own
		c.create(services, s)
	}
	c.define("breweries", "v1") // 1000
	var aggregated, plain, versions, plainVersions []string
	c.eventually(func() string {
		var list apidiscoveryv2.APIGroupDiscoveryList
		c.decode("/apis", &list, "Accept", acceptAggregated)
		aggregated, versions = nil, nil
		for _, g := range list.Items {
			aggregated = append(aggregated, g.Name)
			for _, v := range g.Versions {
				if g.Name == "mid.example.com" {
					versions = append(versions, v.Version)
				}
			}
		}
		if len(versions) < 4 || !slices.Contains(aggregated, group) {
			return fmt.Sprintf("all groups: %v, %v", aggregated, versions)
		}
		return ""
	})
	var list metav1.APIGroupList
	c.decode("/apis", &list)
	for _, g := range list.Groups {
		plain = append(plain, g.Name)
		for _, v := range g.Versions {
			if g.Name == "mid.example.com" {
				plainVersions = append(plainVersions, v.Version)
			}
		}
	}
	for form, order := range map[string][]string{"aggregated": aggregated, "plain": plain} {
		var places []int
		for _, name := range []string{"apiregistration.k8s.io", "high.example.com", "apps", "mid.example.com", group, "low.example.com"} {
			places = append(places, slices.Index(order, name))
		}
		if !slices.IsSorted(places) || places[0] != 0 {
			t.Errorf("%s: the groups are %v", form, order)
		}
	}
	if want := []string{"v1alpha1", "v2", "v1", "v2beta1"}; !slices.Equal(versions, want) || !slices.Equal(plainVersions, want) {
		t.Errorf("the versions are %v and %v, want %v", versions, plainVersions, want)
	}
}

// What a server says that is no discovery, too much of it, or nothing at all, is not believed. All else goes on.
func TestNonsense(t *testing.T) {
	for name, says := range map[string]http.HandlerFunc{
		"garbage": func(w http.ResponseWriter, _ *http.Request) {
			sendJSON(w, "{]", ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		},
		"an error": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) },
		"too much": func(w http.ResponseWriter, _ *http.Request) {
			sendJSON(w, `{"items":[`, ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			for range 5 << 10 {
				if _, err := w.Write(make([]byte, 1<<10)); err != nil {
					return
				}
			}
		},
		"nothing": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"too many headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 2<<20))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			b := c.newBackend("192.0.2.1")
			b.handle("/apis", says)
			b.handle("/apis/"+group+"/v1", func(w http.ResponseWriter, r *http.Request) { // the check does not read it
				if r.Header.Get("Accept") != "" {
					says(w, r)
				}
			})
			c.service("wardle", "192.0.2.1")
			c.create(services, c.apiService(group, "v1", "wardle"))
			c.awaitCondition("v1."+group, passed)
			c.awaitFreshness("v1."+group, apidiscoveryv2.DiscoveryFreshnessStale)
			if _, err := c.api.Discovery().ServerGroups(); err != nil {
				t.Errorf("discovery: %v", err)
			}
			b.handle("/apis", nil)
			c.check("wardle")
			c.awaitFreshness("v1."+group, apidiscoveryv2.DiscoveryFreshnessCurrent)
		})
	}
}

// The OpenAPI documents have what another server says of its group version, and nothing that it says of what others serve.
func TestOpenAPI(t *testing.T) {
	c, b := newWardle(t)
	path := "/openapi/v3/apis/" + group + "/v1"
	c.eventually(func() string {
		if root := c.get("/openapi/v3"); !strings.Contains(root.body, `"apis/wardle.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1?hash=`) {
			return "the document to be listed: " + root.body
		}
		return ""
	})
	if got := c.get(path); got.code != http.StatusOK || !strings.Contains(got.body, `"com.example.wardle.v1.Flunder"`) {
		t.Errorf("v3: %d %s", got.code, got.body)
	}
	var v2 struct {
		Paths       map[string]any
		Definitions map[string]struct{ Description string }
	}
	c.decode("/openapi/v2", &v2, "Accept", "application/json")
	if v2.Definitions["com.example.wardle.v1.Flunder"].Description != "A flunder." || v2.Paths["/apis/wardle.example.com/v1/"] == nil {
		t.Errorf("v2 lacks what the server serves: %d paths", len(v2.Paths))
	}
	if v2.Paths["/apis/apps/v1/stolen"] != nil || v2.Definitions["io.k8s.api.core.v1.Pod"].Description == "stolen" {
		t.Error("v2 has what the server says of others")
	}

	b.handle("/openapi/v3", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, strings.ReplaceAll(v3Root, "hash=1", "hash=2"), "")
	})
	b.handle("/openapi/v3/apis/"+group+"/v1", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, strings.ReplaceAll(v3Document, "Flunder", "Changed"), "")
	})
	c.check("wardle")
	c.eventually(func() string {
		if got := c.get(path); !strings.Contains(got.body, "Changed") {
			return "the new document: " + got.body
		}
		return ""
	})
	c.delete(services + "/v1." + group)
	c.eventually(func() string {
		if got := c.get(path); got.code != http.StatusNotFound {
			return "the document to vanish: " + got.body
		}
		return ""
	})
	if v2 := c.get("/openapi/v2", "Accept", "application/json"); v2.code != http.StatusOK || strings.Contains(v2.body, "com.example.wardle") {
		t.Errorf("v2 after the server is gone: %d", v2.code)
	}
}

// A server whose OpenAPI documents are nonsense takes nothing from those of others.
func TestOpenAPINonsense(t *testing.T) {
	c := newCluster(t)
	b := c.newBackend("192.0.2.1")
	for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/" + group + "/v1"} {
		b.handle(path, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "nonsense") })
	}
	c.service("wardle", "192.0.2.1")
	c.create(services, c.apiService(group, "v1", "wardle"))
	c.awaitServed("v1." + group)
	if got := c.get("/openapi/v2", "Accept", "application/json"); got.code != http.StatusOK || !json.Valid([]byte(got.body)) || !strings.Contains(got.body, "io.k8s.api.core.v1.Pod") {
		t.Errorf("v2: %d", got.code)
	}
	c.eventually(func() string {
		if got := c.get("/openapi/v3/apis/" + group + "/v1"); got.code != http.StatusInternalServerError {
			return fmt.Sprintf("an error of the document alone: %d %s", got.code, got.body)
		}
		return ""
	})
	if got := c.get("/openapi/v3/apis/apps/v1"); got.code != http.StatusOK {
		t.Errorf("v3 of another group version: %d", got.code)
	}
}

// An APIService takes a group version over from a definition or from what is built in, in requests, discovery and OpenAPI, until it is deleted.
func TestTakesOver(t *testing.T) {
	c := newCluster(t)
	c.define("flunders", "v1")
	c.eventually(func() string {
		if got := c.get(flunders); got.code != http.StatusOK {
			return "the definition to be served: " + got.body
		}
		return ""
	})
	c.awaitCondition("v1."+group, "True Local")
	b := c.newBackend("192.0.2.1", "wardle.default.svc")
	b.handle(flunders, echo)
	c.service("wardle", "192.0.2.1")
	c.patch(services+"/v1."+group, `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"wardle"}}}`)
	c.awaitServed("v1." + group)
	if got := c.get(flunders); got.code != http.StatusTeapot {
		t.Errorf("a request comes to %d %s", got.code, got.body)
	}
	described := func(name string) {
		t.Helper()
		c.eventually(func() string {
			if got := c.get("/openapi/v3/apis/" + group + "/v1"); !strings.Contains(got.body, name) {
				return name + " in OpenAPI: " + got.body
			}
			if got := c.get("/openapi/v2", "Accept", "application/json"); !strings.Contains(got.body, name) {
				return name + " in OpenAPI v2"
			}
			return ""
		})
	}
	described(`"com.example.wardle.v1.Flunder":{"type":"object"`)
	// A change of the definition does not take the documents of the other server away.
	c.patch("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/flunders."+group, `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","description":"changed"}}}]}}`)
	c.define("breweries", "v1")
	c.awaitEstablished("breweries")
	described(`"com.example.wardle.v1.Flunder":{"type":"object"`)
	if c.get(flunders).code != http.StatusTeapot {
		t.Error("the definition took it back")
	}

	c.delete(services + "/v1." + group)
	c.awaitCondition("v1."+group, "True Local") // it is made again for the definition
	if got := c.get(flunders); got.code != http.StatusOK {
		t.Errorf("the definition is served again: %d %s", got.code, got.body)
	}
	described(`"com.example.wardle.v1.FlunderList"`)

	b.handle("/apis/apps/v1", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[]}`, "")
	})
	b.handle("/apis/apps/v1/deployments", echo)
	c.patch(services+"/v1.apps", `{"spec":{"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"wardle"}}}`)
	c.awaitServed("v1.apps")
	if got := c.get("/apis/apps/v1/deployments"); got.code != http.StatusTeapot {
		t.Errorf("a built-in group version that was taken over: %d %s", got.code, got.body)
	}
	component := c.InProcess("component", "admin", "system:masters")
	if _, err := component.Kubernetes().AppsV1().Deployments("").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "418") && !strings.Contains(err.Error(), "teapot") && !strings.Contains(err.Error(), "GET /apis/apps/v1/deployments") {
		t.Errorf("a component of this process gets another answer than others: %v", err)
	}
	c.patch(services+"/v1.apps", `{"spec":{"insecureSkipTLSVerify":false,"service":null}}`)
	c.eventually(func() string {
		if got := c.get("/apis/apps/v1/deployments"); got.code != http.StatusOK {
			return "the built-in group version again: " + got.body
		}
		return ""
	})
}

// awaitEstablished waits until a definition is served.
func (c *cluster) awaitEstablished(plural string) {
	c.t.Helper()
	c.eventually(func() string {
		if a := c.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + "." + group); !strings.Contains(a.body, `"type":"Established"`) {
			return "the definition to be established: " + a.body
		}
		return ""
	})
}
