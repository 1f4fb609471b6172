package garbagecollector

import (
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// resources holds the kinds that the API server serves.
type resources struct {
	served    map[kindName]*kind
	monitored map[schema.GroupVersionResource]*kind // kinds whose objects are in the graph
	failed    map[schema.GroupVersion]bool          // group versions whose discovery failed
}

// ignored holds resources that have neither owners nor dependents, and change all the time.
var ignored = []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}

// discover returns the served kinds. It fails only if it finds none.
func discover(d discovery.DiscoveryInterface) (resources, error) {
	groups, lists, err := d.ServerGroupsAndResources()
	r := resources{served: map[kindName]*kind{}, monitored: map[schema.GroupVersionResource]*kind{}, failed: map[schema.GroupVersion]bool{}}
	if failures, some := discovery.GroupDiscoveryFailedErrorGroups(err); some {
		for gv := range failures {
			r.failed[gv] = true
		}
		err = nil
	}
	if err != nil {
		return r, err
	}
	if len(lists) == 0 {
		return r, errors.New("no resources reported by discovery")
	}
	preferred := map[string]string{}
	for _, group := range groups {
		preferred[group.Name] = group.PreferredVersion.Version
	}
	r.add(lists, preferred)
	return r, nil
}

// add adds what discovery listed. Of a resource with several versions, one is monitored: the preferred version if it can be, or else the first.
func (r *resources) add(lists []*metav1.APIResourceList, preferred map[string]string) {
	chosen := map[schema.GroupResource]*kind{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // never: an API server names what it serves
		}
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") {
				continue
			}
			k := &kind{kindName{list.GroupVersion, resource.Kind}, gv.WithResource(resource.Name), resource.Namespaced}
			r.served[k.kindName] = k
			if group := k.resource.GroupResource(); can(resource, "delete", "list", "watch") && !slices.Contains(ignored, group) &&
				(chosen[group] == nil || gv.Version == preferred[gv.Group]) {
				chosen[group] = k
			}
		}
	}
	for _, k := range chosen {
		r.monitored[k.resource] = k
	}
}

// keep adds known kinds of group versions whose discovery failed.
func (r *resources) keep(known map[kindName]*kind) {
	for by, k := range known {
		if r.served[by] == nil && r.failed[k.resource.GroupVersion()] {
			r.served[by] = k
		}
	}
}

func can(resource metav1.APIResource, verbs ...string) bool {
	for _, verb := range verbs {
		if !slices.Contains(resource.Verbs, verb) {
			return false
		}
	}
	return true
}
