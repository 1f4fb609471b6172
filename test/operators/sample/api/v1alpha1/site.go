// Package v1alpha1 has the first version of Site: it has one page, and an address in place of a port.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "sample/api/v1"
)

// GroupVersion is that of the package.
var GroupVersion = schema.GroupVersion{Group: v1.GroupVersion.Group, Version: "v1alpha1"}

// AddToScheme adds the types of the package to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Site is a page that a web server shows.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              SiteSpec      `json:"spec,omitempty"`
	Status            v1.SiteStatus `json:"status,omitempty"`
}

// SiteSpec says what is shown, and by what.
type SiteSpec struct {
	Image    string `json:"image,omitempty"`
	Replicas *int32 `json:"replicas,omitempty"`
	// Listen is a colon and a port.
	Listen string `json:"listen,omitempty"`
	// Page is the content of index.html.
	Page string `json:"page,omitempty"`
}

// SiteList is a list of Sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Site `json:"items"`
}

// DeepCopyInto copies a Site.
func (s *Site) DeepCopyInto(to *Site) {
	*to = *s
	s.ObjectMeta.DeepCopyInto(&to.ObjectMeta)
	if s.Spec.Replicas != nil {
		replicas := *s.Spec.Replicas
		to.Spec.Replicas = &replicas
	}
	s.Status.DeepCopyInto(&to.Status)
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
