package environment

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// field returns the value of a fieldRef in a variable: what MetadataField knows, and what only the node knows of the pod.
func (in *Input) field(ref *corev1.ObjectFieldSelector) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	ips := in.Node.SortIPs(in.PodIPs)
	switch ref.FieldPath {
	case "spec.nodeName", "spec.host":
		return in.Pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return in.Pod.Spec.ServiceAccountName, nil
	case "status.hostIP":
		if len(in.Node.IPs) == 0 {
			return "", fmt.Errorf("the address of node %s is not known yet", in.Pod.Spec.NodeName)
		}
		return in.Node.IPs[0], nil
	case "status.hostIPs":
		if len(in.Node.IPs) == 0 {
			return "", fmt.Errorf("the addresses of node %s are not known yet", in.Pod.Spec.NodeName)
		}
		return strings.Join(in.Node.IPs, ","), nil
	case "status.podIP":
		if len(ips) == 0 {
			return "", nil
		}
		return ips[0], nil
	case "status.podIPs":
		return strings.Join(ips, ","), nil
	}
	return MetadataField(in.Pod, ref.FieldPath)
}

// MetadataField returns a field of the pod's metadata as text, by its path: all a downwardAPI volume may show, and part of what a variable may.
func MetadataField(pod *corev1.Pod, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			if problems := validation.IsQualifiedName(strings.ToLower(key)); len(problems) > 0 {
				return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(problems, ";"))
			}
			return pod.Annotations[key], nil
		case "metadata.labels":
			if problems := validation.IsQualifiedName(key); len(problems) > 0 {
				return "", fmt.Errorf("invalid key subscript in %s: %s", path, strings.Join(problems, ";"))
			}
			return pod.Labels[key], nil
		}
		return "", fmt.Errorf("fieldPath %q does not support subscript", path)
	}
	switch path {
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	}
	return "", fmt.Errorf("unsupported fieldPath: %v", path)
}

// subscript takes metadata.labels['key'] apart.
func subscript(path string) (name, key string, ok bool) {
	inner, closed := strings.CutSuffix(path, "']")
	if !closed {
		return path, "", false
	}
	name, key, ok = strings.Cut(inner, "['")
	if !ok || name == "" {
		return path, "", false
	}
	return name, key, true
}

// formatMap writes one key="value" per line, in order of keys.
func formatMap(m map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}
