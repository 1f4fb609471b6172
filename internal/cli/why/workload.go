package why

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"skiff/internal/journey"
)

// workload is an object whose controller makes pods, with the fields that all kinds of them share.
type workload struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int32
	}
	Status struct {
		Replicas, UpdatedReplicas                      int32
		DesiredNumberScheduled, CurrentNumberScheduled int32
		Active, Succeeded, Failed                      int32
		Conditions                                     []appsv1.DeploymentCondition
	}

	resource    string
	replicaSets []*workload // of a Deployment
}

// satisfied reports whether the workload has the pods it wants.
func (w *workload) satisfied() bool {
	switch s := &w.Status; w.resource {
	case "deployments.apps":
		return s.Replicas >= wanted(w.Spec.Replicas) && s.UpdatedReplicas >= wanted(w.Spec.Replicas)
	case "daemonsets.apps":
		return s.CurrentNumberScheduled >= s.DesiredNumberScheduled
	case "jobs.batch":
		return s.Active+s.Succeeded+s.Failed > 0
	default:
		return s.Replicas >= wanted(w.Spec.Replicas)
	}
}

// current returns the failures without the refusals of pods that the workload has got since.
func (w *workload) current(list []journey.Failure) []journey.Failure {
	if !w.satisfied() {
		return list
	}
	return slices.DeleteFunc(list, func(f journey.Failure) bool {
		return f.Verdict != journey.FailedOpen && f.BecauseOf(string(w.UID)) && !strings.HasPrefix(f.Resource, w.resource)
	})
}

func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

// paths are the paths of workloads, before the namespace.
var paths = map[string]string{"replicationcontrollers": "/api/v1", "deployments.apps": "/apis/apps/v1", "replicasets.apps": "/apis/apps/v1",
	"statefulsets.apps": "/apis/apps/v1", "daemonsets.apps": "/apis/apps/v1", "jobs.batch": "/apis/batch/v1"}

// readWorkload reads a workload, and what is remembered of the pods that its controller did not get.
func (s *subject) readWorkload(ctx context.Context) error {
	w := &workload{resource: s.tree.Resource}
	plural, _, _ := strings.Cut(s.tree.Resource, ".")
	err := s.getJSON(ctx, paths[s.tree.Resource]+"/namespaces/"+s.namespace+"/"+plural+"/"+s.name, w)
	if apierrors.IsNotFound(err) {
		return nil // it was refused, or is deleted
	}
	if err != nil {
		return err
	}
	s.workload = w
	s.failures = w.current(s.failures)
	if w.resource == "deployments.apps" {
		if err := s.readReplicaSets(ctx); err != nil {
			return err
		}
	}
	for _, of := range append([]*workload{w}, w.replicaSets...) {
		s.readEvents(ctx, string(of.UID))
	}
	return nil
}

// maxReplicaSets bounds how many ReplicaSets of a Deployment are looked at, the newest first.
const maxReplicaSets = 5

// readReplicaSets reads the ReplicaSets of a Deployment, and what is remembered of the pods that they did not get.
func (s *subject) readReplicaSets(ctx context.Context) error {
	list, err := s.api.Kubernetes().AppsV1().ReplicaSets(s.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(list.Items, func(rs appsv1.ReplicaSet) bool {
		owner := metav1.GetControllerOf(&rs)
		return owner == nil || owner.UID != s.workload.UID
	})
	slices.SortFunc(own, func(a, b appsv1.ReplicaSet) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i := range own[:min(len(own), maxReplicaSets)] {
		w := replicaSet(&own[i])
		s.workload.replicaSets = append(s.workload.replicaSets, w)
		tree, _, err := s.api.Journey(ctx, w.resource, s.namespace, w.Name)
		switch {
		case apierrors.IsNotFound(err) || apierrors.IsForbidden(err):
		case err != nil:
			return err
		default:
			s.failures = append(s.failures, w.current(tree.Failures)...)
		}
	}
	return nil
}

func replicaSet(rs *appsv1.ReplicaSet) *workload {
	w := &workload{ObjectMeta: rs.ObjectMeta, resource: "replicasets.apps"}
	w.Spec.Replicas, w.Status.Replicas = rs.Spec.Replicas, rs.Status.Replicas
	for _, c := range rs.Status.Conditions {
		w.Status.Conditions = append(w.Status.Conditions, appsv1.DeploymentCondition{Type: appsv1.DeploymentConditionType(c.Type), Status: c.Status, Reason: c.Reason, Message: c.Message, LastTransitionTime: c.LastTransitionTime})
	}
	return w
}

// readPod reads a pod, if it exists.
func (s *subject) readPod(ctx context.Context) error {
	pod, err := s.api.Kubernetes().CoreV1().Pods(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && len(s.failures) > 0 {
		return nil
	}
	if err != nil {
		return err
	}
	s.pod = pod
	s.readEvents(ctx, string(pod.UID))
	return nil
}

// readEvents reads the Events of an object. They may be forbidden; the rest is not.
func (s *subject) readEvents(ctx context.Context, uid string) {
	selector := fields.Set{"involvedObject.uid": uid}.String()
	if events, err := s.api.Kubernetes().CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: 500}); err == nil {
		s.events = append(s.events, events.Items...)
	}
}

// getJSON reads an object into a value that has only the fields of interest.
func (s *subject) getJSON(ctx context.Context, path string, into any) error {
	body, err := s.api.Kubernetes().CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
