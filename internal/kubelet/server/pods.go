package server

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
)

// pods answers with the pods that should run here.
func (s *Server) pods(w http.ResponseWriter, _ *http.Request) {
	list := podList()
	for _, p := range s.opts.Pods.Pods() {
		list.Items = append(list.Items, *p)
	}
	writeJSON(w, list)
}

// runningPods answers with the pods that do run here: only what the runtime knows of each.
func (s *Server) runningPods(w http.ResponseWriter, rq *http.Request) {
	sandboxes, err := s.opts.Runtime.ListPodSandboxes(rq.Context(), &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	containers, err := s.opts.Runtime.ListContainers(rq.Context(), &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	list, at := podList(), map[string]int{}
	for _, b := range sandboxes {
		m := b.GetMetadata()
		if _, known := at[m.GetUid()]; known {
			continue
		}
		at[m.GetUid()] = len(list.Items)
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: types.UID(m.GetUid())}})
	}
	for _, c := range containers {
		if i, known := at[c.GetLabels()[cri.LabelPodUID]]; known {
			spec := &list.Items[i].Spec
			spec.Containers = append(spec.Containers, corev1.Container{Name: c.GetMetadata().GetName(), Image: c.GetImage().GetImage()})
		}
	}
	writeJSON(w, list)
}

func podList() *corev1.PodList {
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
}

func writeJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(data, '\n'))
}
