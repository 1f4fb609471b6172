package cri

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels of sandboxes and containers.
const (
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelContainer    = "io.kubernetes.container.name"
)

// Annotations of containers: what a kubelet needs to keep a container, or to stop it properly, when it knows nothing else about it.
const (
	annotationHash              = "io.kubernetes.container.hash"
	annotationRestartCount      = "io.kubernetes.container.restartCount"
	annotationTerminationPath   = "io.kubernetes.container.terminationMessagePath"
	annotationTerminationPolicy = "io.kubernetes.container.terminationMessagePolicy"
	annotationPreStop           = "io.kubernetes.container.preStopHandler"
	annotationPorts             = "io.kubernetes.container.ports"
	annotationDeletionGrace     = "io.kubernetes.pod.deletionGracePeriod"
	annotationTerminationGrace  = "io.kubernetes.pod.terminationGracePeriod"
	annotationResources         = "skiff/resources" // the CPU shares, CPU quota and memory limit it was created with
)

// PodLabels returns the labels of a pod's sandbox: the pod's labels, and which pod it is.
func PodLabels(pod *corev1.Pod) map[string]string {
	labels := make(map[string]string, len(pod.Labels)+3)
	for k, v := range pod.Labels {
		labels[k] = v
	}
	labels[LabelPodName], labels[LabelPodNamespace], labels[LabelPodUID] = pod.Name, pod.Namespace, string(pod.UID)
	return labels
}

// ContainerLabels returns the labels of a container: its pod and its name.
func ContainerLabels(pod *corev1.Pod, container string) map[string]string {
	return map[string]string{LabelPodName: pod.Name, LabelPodNamespace: pod.Namespace, LabelPodUID: string(pod.UID), LabelContainer: container}
}

// OfPod returns a label selector of what belongs to a pod.
func OfPod(uid types.UID) map[string]string { return map[string]string{LabelPodUID: string(uid)} }

// ContainerAnnotations returns the annotations of a container. restarts is how often it was started before, r its resources.
func ContainerAnnotations(pod *corev1.Pod, c *corev1.Container, restarts int, r *runtimeapi.LinuxContainerResources) map[string]string {
	a := map[string]string{
		annotationResources:         fmt.Sprintf("%d %d %d", r.GetCpuShares(), r.GetCpuQuota(), r.GetMemoryLimitInBytes()),
		annotationHash:              Hash(c),
		annotationRestartCount:      strconv.Itoa(restarts),
		annotationTerminationPath:   c.TerminationMessagePath,
		annotationTerminationPolicy: string(c.TerminationMessagePolicy),
	}
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		a[annotationDeletionGrace] = strconv.FormatInt(*s, 10)
	}
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		a[annotationTerminationGrace] = strconv.FormatInt(*s, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		a[annotationPreStop] = encode(c.Lifecycle.PreStop)
	}
	if len(c.Ports) > 0 {
		a[annotationPorts] = encode(c.Ports)
	}
	return a
}

func encode(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return "" // API types always encode
	}
	return string(data)
}

// Hash returns a hash of a container's name and image: a running container with another hash has to be restarted. All else of a container cannot change, or is
// changed in place.
func Hash(c *corev1.Container) string {
	h := fnv.New32a()
	h.Write([]byte(encode([2]string{c.Name, c.Image})))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// Restored returns the pod and the container as far as labels and annotations have them: enough to stop the container properly.
func (c *Container) Restored(uid types.UID) (*corev1.Pod, *corev1.Container) {
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace, pod.UID = c.labels[LabelPodName], c.labels[LabelPodNamespace], uid
	pod.DeletionGracePeriodSeconds = number(c.annotations[annotationDeletionGrace])
	pod.Spec.TerminationGracePeriodSeconds = number(c.annotations[annotationTerminationGrace])
	spec := &corev1.Container{Name: c.Name, TerminationMessagePath: c.annotations[annotationTerminationPath]}
	var hook corev1.LifecycleHandler
	if s := c.annotations[annotationPreStop]; s != "" && json.Unmarshal([]byte(s), &hook) == nil {
		spec.Lifecycle = &corev1.Lifecycle{PreStop: &hook}
	}
	if s := c.annotations[annotationPorts]; s != "" {
		if json.Unmarshal([]byte(s), &spec.Ports) != nil {
			spec.Ports = nil
		}
	}
	return pod, spec
}

// given returns the resources that a container was created with, nil if skiff did not create it.
func given(annotation string) *runtimeapi.LinuxContainerResources {
	var r runtimeapi.LinuxContainerResources
	if n, err := fmt.Sscanf(annotation, "%d %d %d", &r.CpuShares, &r.CpuQuota, &r.MemoryLimitInBytes); n != 3 || err != nil {
		return nil
	}
	return &r
}

func number(s string) *int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}
