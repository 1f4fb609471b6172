package endpointslice

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: stories.Addresses, Show: show})
}

// show prints a slice: its endpoints sorted, as their order means nothing.
func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	slice, isSlice := obj.(*discoveryv1.EndpointSlice)
	if !ok || !isSlice || verb == "delete" {
		return ""
	}
	var lines []string
	for _, p := range slice.Ports {
		lines = append(lines, fmt.Sprintf("port %s %d/%s", *p.Name, *p.Port, *p.Protocol))
	}
	slices.Sort(lines)
	lines = append([]string{fmt.Sprintf("%s for %s", slice.AddressType, slice.Labels[discoveryv1.LabelServiceName])}, lines...)
	var endpoints []string
	for _, e := range slice.Endpoints {
		line := e.Addresses[0]
		if *e.Conditions.Ready {
			line += " ready"
		}
		if *e.Conditions.Serving {
			line += " serving"
		}
		if *e.Conditions.Terminating {
			line += " terminating"
		}
		line += " pod=" + e.TargetRef.Name
		if e.NodeName != nil {
			line += " node=" + *e.NodeName
		}
		if e.Zone != nil {
			line += " zone=" + *e.Zone
		}
		if e.Hostname != nil {
			line += " hostname=" + *e.Hostname
		}
		if e.Hints != nil {
			for _, z := range e.Hints.ForZones {
				line += " for-zone=" + z.Name
			}
			for _, n := range e.Hints.ForNodes {
				line += " for-node=" + n.Name
			}
		}
		endpoints = append(endpoints, line)
	}
	slices.Sort(endpoints)
	return strings.Join(append(lines, endpoints...), "\n")
}
