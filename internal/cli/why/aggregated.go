package why

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is what is of interest of an APIService.
type apiService struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Service *struct {
			Namespace, Name string
			Port            *int32
		}
	}
	Status struct {
		Conditions []metav1.Condition
	}
}

// unavailable returns the condition that says that the server of the API does not answer; nil if it does.
func (a *apiService) unavailable() *metav1.Condition {
	for i := range a.Status.Conditions {
		if c := &a.Status.Conditions[i]; c.Type == "Available" && c.Status != metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

func (a *apiService) server() string {
	return fmt.Sprintf("it is served by the Service %s in %s", a.Spec.Service.Name, a.Spec.Service.Namespace)
}

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

func (s *subject) readAPIService(ctx context.Context) error {
	if s.tree.UID == "" {
		return nil // it was refused
	}
	s.apis = make([]apiService, 1)
	return s.getJSON(ctx, apiServices+"/"+s.name, &s.apis[0])
}

// unavailable finds that the server of the APIService does not answer.
func unavailable(s *subject) (found []finding) {
	if s.namespaceIs != nil {
		return nil
	}
	for i := range s.apis {
		if c := s.apis[i].unavailable(); c != nil && s.apis[i].Spec.Service != nil {
			found = append(found, finding{fmt.Sprintf("The aggregated API %s is unavailable (%s): %s", s.apis[i].Name, c.Reason, ended(c.Message)),
				[]string{s.apis[i].server() + "; unavailable since " + ago(s.now, c.LastTransitionTime.Time)}})
		}
	}
	return found
}

// readNamespace reads a namespace and, if it is being removed, the APIs that may keep it.
func (s *subject) readNamespace(ctx context.Context) error {
	if s.tree.UID == "" {
		return nil
	}
	var err error
	if s.namespaceIs, err = s.api.Kubernetes().CoreV1().Namespaces().Get(ctx, s.name, metav1.GetOptions{}); err != nil || s.namespaceIs.DeletionTimestamp == nil {
		return err
	}
	var list struct{ Items []apiService }
	if err := s.getJSON(ctx, apiServices, &list); err != nil {
		return err
	}
	for _, a := range list.Items {
		if a.Spec.Service != nil && a.unavailable() != nil {
			s.apis = append(s.apis, a)
		}
	}
	return nil
}

// waitsForAPI finds that a namespace is not removed because nobody knows what it has of an aggregated API.
func waitsForAPI(s *subject) (found []finding) {
	if s.namespaceIs == nil || s.namespaceIs.DeletionTimestamp == nil {
		return nil
	}
	for _, of := range s.namespaceIs.Status.Conditions {
		if of.Status != corev1.ConditionTrue || of.Type != corev1.NamespaceDeletionDiscoveryFailure && of.Type != corev1.NamespaceDeletionContentFailure {
			continue
		}
		for i := range s.apis {
			a := &s.apis[i]
			version, group, _ := strings.Cut(a.Name, ".")
			if !strings.Contains(of.Message, group+"/"+version) {
				continue
			}
			c := a.unavailable()
			found = append(found, finding{
				fmt.Sprintf("Namespace %s cannot be removed as long as the aggregated API %s is unavailable: nobody knows what the namespace has of it.", s.name, a.Name),
				[]string{fmt.Sprintf("the API: %s (%s); %s", c.Message, c.Reason, a.server()), fmt.Sprintf("the namespace: %s (%s)", of.Message, of.Reason),
					"kubectl delete apiservice " + a.Name + " lets the namespace go, if the API is not to come back"}})
		}
	}
	return found
}
