package limitranger

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// annotation lists on a pod the defaults that were set.
const annotation = "kubernetes.io/limit-ranger"

// fill sets the defaults on containers that lack them, and lists them in the pod's annotation.
func (r *limitRange) fill(pod *corev1.Pod) {
	if len(r.requests)+len(r.limits) == 0 {
		return
	}
	var notes []string
	for i := range pod.Spec.Containers {
		notes = r.fillContainer(notes, &pod.Spec.Containers[i], "container")
	}
	for i := range pod.Spec.InitContainers {
		notes = r.fillContainer(notes, &pod.Spec.InitContainers[i], "init container")
	}
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[annotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

func (r *limitRange) fillContainer(notes []string, c *corev1.Container, kind string) []string {
	if set := fillList(&c.Resources.Requests, r.requests); len(set) > 0 {
		notes = append(notes, strings.Join(set, ", ")+" request for "+kind+" "+c.Name)
	}
	if set := fillList(&c.Resources.Limits, r.limits); len(set) > 0 {
		notes = append(notes, strings.Join(set, ", ")+" limit for "+kind+" "+c.Name)
	}
	return notes
}

// fillList adds the defaults that the list lacks and returns their names.
func fillList(list *corev1.ResourceList, defaults []amount) (set []string) {
	for _, d := range defaults {
		if _, ok := (*list)[d.name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[d.name] = d.value.DeepCopy()
		set = append(set, string(d.name))
	}
	return set
}
