package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"skiff/internal/client"
)

// acceptAggregated asks for the aggregated form of discovery, which has what is known of group versions whose servers are down.
const acceptAggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover returns the namespaced resources whose objects can be deleted, with their verbs. Resources whose discovery fails do not keep the
// rest from being swept. A group version whose server is down is not an error if that server has said before what it serves: upstream stops here,
// so that no namespace ends while metrics-server, whose objects nobody can delete, is down.
func discover(ctx context.Context, c *client.Client) (map[schema.GroupVersionResource]metav1.Verbs, report) {
	var r report
	api := c.Kubernetes().Discovery()
	lists, err := api.ServerPreferredNamespacedResources()
	resources := map[schema.GroupVersionResource]metav1.Verbs{}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"delete"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			r.parsing = err
			continue
		}
		for _, resource := range list.APIResources {
			resources[gv.WithResource(resource.Name)] = resource.Verbs
		}
	}
	var failed *discovery.ErrGroupDiscoveryFailed
	if errors.As(err, &failed) {
		var last apidiscoveryv2.APIGroupDiscoveryList
		body, readErr := api.RESTClient().Get().AbsPath("/apis").SetHeader("Accept", acceptAggregated).DoRaw(ctx)
		if readErr == nil && json.Unmarshal(body, &last) == nil {
			err = addStale(resources, failed.Groups, &last)
		}
	}
	r.discovery = err
	return resources, r
}

// addStale adds to resources what the last discovery of stale group versions has, unless another version of it is there. It returns the error of
// the group versions in failed of which nothing is known.
func addStale(resources map[schema.GroupVersionResource]metav1.Verbs, failed map[schema.GroupVersion]error, last *apidiscoveryv2.APIGroupDiscoveryList) error {
	served := map[schema.GroupResource]bool{}
	for resource := range resources {
		served[resource.GroupResource()] = true
	}
	unknown := map[schema.GroupVersion]error{}
	for gv, err := range failed {
		known := lastDiscovery(last, gv)
		if stale := (discovery.StaleGroupVersionError{}); len(known) == 0 || !errors.As(err, &stale) {
			unknown[gv] = err
			continue
		}
		for _, resource := range known {
			gvr := gv.WithResource(resource.Resource)
			if resource.Scope == apidiscoveryv2.ScopeNamespace && slices.Contains(resource.Verbs, "delete") && !served[gvr.GroupResource()] {
				resources[gvr] = resource.Verbs
			}
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return &discovery.ErrGroupDiscoveryFailed{Groups: unknown}
}

// lastDiscovery returns the resources of a group version in a document.
func lastDiscovery(document *apidiscoveryv2.APIGroupDiscoveryList, gv schema.GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
	for _, group := range document.Items {
		if group.Name != gv.Group {
			continue
		}
		for _, version := range group.Versions {
			if version.Version == gv.Version {
				return version.Resources
			}
		}
	}
	return nil
}
