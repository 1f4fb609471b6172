// Package v1 has the version of Site that is stored, and to which and from which all others are converted.
package v1

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the package.
var GroupVersion = schema.GroupVersion{Group: "sample.example.com", Version: "v1"}

// AddToScheme adds the types of the package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Site is a few pages that a web server shows.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec   `json:"spec,omitempty"`
	Status            SiteStatus `json:"status,omitempty"`
}

// SiteSpec says what is shown, and by what.
type SiteSpec struct {
	// Image has busybox.
	Image    string `json:"image,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
	Port     int32  `json:"port,omitempty"`
	// Pages are the contents of files by their names.
	Pages map[string]string `json:"pages,omitempty"`
}

// SiteStatus says how far the operator is.
type SiteStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Replicas           int32              `json:"replicas,omitempty"`
	ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
	Selector           string             `json:"selector,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// SiteList is a list of Sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

// Hub marks the version that all others are converted to and from.
func (*Site) Hub() {}

// DeepCopyInto copies a Site.
func (s *Site) DeepCopyInto(to *Site) {
	*to = *s
	s.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	s.Spec.DeepCopyInto(&to.Spec)
	s.Status.DeepCopyInto(&to.Status)
}

// DeepCopyInto copies the spec of a Site.
func (s *SiteSpec) DeepCopyInto(to *SiteSpec) {
	*to = *s
	if s.Replicas != nil {
		replicas := *s.Replicas
		to.Replicas = &replicas
	}
	to.Pages = maps.Clone(s.Pages)
}

// DeepCopyInto copies the status of a Site.
func (s *SiteStatus) DeepCopyInto(to *SiteStatus) {
	*to = *s
	to.Conditions = slices.Clone(s.Conditions) // a Condition holds no pointers
}

// DeepCopyObject implements runtime.Object.
func (s *Site) DeepCopyObject() runtime.Object {
	to := &Site{}
	s.DeepCopyInto(to)
	return to
}

// DeepCopyObject implements runtime.Object.
func (l *SiteList) DeepCopyObject() runtime.Object {
	to := &SiteList{TypeMeta: l.TypeMeta, Items: make([]Site, len(l.Items))}
	l.ListMeta.DeepCopyInto(&to.ListMeta)
	for i := range l.Items {
		l.Items[i].DeepCopyInto(&to.Items[i])
	}
	return to
}
