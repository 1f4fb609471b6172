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
	stories.Run(t, New, stories.Options{Prepare: prepare, Show: show})
}

// prepare gives Services and pods what the server gives them.
func prepare(obj controller.Object) {
	if s, ok := obj.(*corev1.Service); ok && s.Spec.IPFamilies == nil {
		s.Spec.ClusterIP, s.Spec.IPFamilies = "10.43.0.7", []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if p, ok := obj.(*corev1.Pod); ok && p.Status.PodIP != "" && p.Status.PodIPs == nil {
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
	}
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
