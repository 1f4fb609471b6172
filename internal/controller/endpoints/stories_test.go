package endpoints

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/controller"
	"skiff/internal/controller/stories"
)

func TestStories(t *testing.T) {
	stories.Run(t, New, stories.Options{Prepare: stories.Addresses, Show: show})
}

func show(a controller.Action) string {
	verb, _, obj, ok := controller.Written(a)
	e, is := obj.(*corev1.Endpoints)
	if !ok || !is || verb == "delete" {
		return ""
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(e.Labels)) {
		lines = append(lines, "label "+name+"="+e.Labels[name])
	}
	for _, s := range e.Subsets {
		line := ""
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %s %d/%s", p.Name, p.Port, p.Protocol)
		}
		lines = append(lines, "subset"+line)
		address := func(a corev1.EndpointAddress, state string) {
			line := fmt.Sprintf("  %s %s pod=%s", a.IP, state, a.TargetRef.Name)
			if a.Hostname != "" {
				line += " hostname=" + a.Hostname
			}
			lines = append(lines, line)
		}
		for _, a := range s.Addresses {
			address(a, "ready")
		}
		for _, a := range s.NotReadyAddresses {
			address(a, "not ready")
		}
	}
	return strings.Join(lines, "\n")
}
