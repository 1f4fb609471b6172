package endpointslicemirroring

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Show: show})
}

func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	slice, is := obj.(*discoveryv1.EndpointSlice)
	if !ok || !is || verb == "delete" {
		return ""
	}
	text := fmt.Sprintf("%s of %s, labels %v\n", slice.AddressType, slice.OwnerReferences[0].Name, slice.Labels)
	for _, p := range slice.Ports {
		text += fmt.Sprintf("port %s %d/%s\n", *p.Name, *p.Port, *p.Protocol)
	}
	for _, e := range slice.Endpoints {
		text += fmt.Sprintf("%s ready=%v\n", e.Addresses[0], *e.Conditions.Ready)
	}
	return text
}
