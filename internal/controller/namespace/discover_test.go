package namespace

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// What is known of a server that is down says what may have to be deleted there. A group version of which nothing is known is an error.
func TestStaleGroupVersions(t *testing.T) {
	resource := func(name string, scope apidiscoveryv2.ResourceScope, verbs ...string) apidiscoveryv2.APIResourceDiscovery {
		return apidiscoveryv2.APIResourceDiscovery{Resource: name, Scope: scope, Verbs: verbs}
	}
	version := func(name string, resources ...apidiscoveryv2.APIResourceDiscovery) apidiscoveryv2.APIVersionDiscovery {
		return apidiscoveryv2.APIVersionDiscovery{Version: name, Freshness: apidiscoveryv2.DiscoveryFreshnessStale, Resources: resources}
	}
	last := &apidiscoveryv2.APIGroupDiscoveryList{Items: []apidiscoveryv2.APIGroupDiscovery{
		{ObjectMeta: metav1.ObjectMeta{Name: "metrics.k8s.io"}, Versions: []apidiscoveryv2.APIVersionDiscovery{
			version("v1beta1", resource("pods", apidiscoveryv2.ScopeNamespace, "get", "list"))}},
		{ObjectMeta: metav1.ObjectMeta{Name: "toys.example.com"}, Versions: []apidiscoveryv2.APIVersionDiscovery{
			version("v2", resource("widgets", apidiscoveryv2.ScopeNamespace, "delete", "list"), resource("shops", apidiscoveryv2.ScopeCluster, "delete", "list")),
			version("v1", resource("widgets", apidiscoveryv2.ScopeNamespace, "delete", "list"), resource("gadgets", apidiscoveryv2.ScopeNamespace, "delete", "list"))}},
		{ObjectMeta: metav1.ObjectMeta{Name: "never.example.com"}, Versions: []apidiscoveryv2.APIVersionDiscovery{version("v1")}},
	}}
	stale := func(gv ...schema.GroupVersion) map[schema.GroupVersion]error {
		failed := map[schema.GroupVersion]error{}
		for _, gv := range gv {
			failed[gv] = discovery.StaleGroupVersionError{}
		}
		return failed
	}
	metrics, toys := schema.GroupVersion{Group: "metrics.k8s.io", Version: "v1beta1"}, schema.GroupVersion{Group: "toys.example.com", Version: "v1"}
	never, missing := schema.GroupVersion{Group: "never.example.com", Version: "v1"}, schema.GroupVersion{Group: "missing.example.com", Version: "v1"}
	v2 := schema.GroupVersionResource{Group: "toys.example.com", Version: "v2", Resource: "widgets"}
	for name, test := range map[string]struct {
		failed map[schema.GroupVersion]error
		want   []string // resources, beside v2
		err    string   // contained in the error
	}{
		"nothing there can be deleted":                {failed: stale(metrics)},
		"served in another version, which is not":     {failed: stale(toys), want: []string{"gadgets"}},
		"never discovered":                            {failed: stale(never), err: "never.example.com/v1"},
		"not in the document":                         {failed: stale(missing), err: "missing.example.com/v1"},
		"one is known, the other is not":              {failed: stale(metrics, never), err: "never.example.com/v1"},
		"known, but the error is not that it is down": {failed: map[schema.GroupVersion]error{metrics: errors.New("garbage")}, err: "garbage"},
	} {
		t.Run(name, func(t *testing.T) {
			resources := map[schema.GroupVersionResource]metav1.Verbs{v2: {"delete", "list"}}
			err := addStale(resources, test.failed, last)
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "metrics") != (test.err == "garbage")) {
				t.Errorf("error: %v", err)
			}
			delete(resources, v2)
			var got []string
			for gvr := range maps.Keys(resources) {
				got = append(got, gvr.Resource)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("resources: %v, not %v", got, test.want)
			}
		})
	}
}
