package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of the kinds.
var GroupVersion = schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1alpha1"}

// AddToScheme adds the kinds to a scheme, for those who decode objects by their kind.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &InitializerConfiguration{}, &InitializerConfigurationList{})
	return nil
}

// +genclient
// +genclient:nonNamespaced

// InitializerConfiguration describes the configuration of initializers.
type InitializerConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata; More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// Initializers is a list of resources and their default initializers. Order-sensitive.
	// When several InitializerConfigurations apply to an object, their initializers are sorted by the names of the InitializerConfigurations; the order of the
	// initializers of one InitializerConfiguration is preserved.
	// +patchMergeKey=name
	// +patchStrategy=merge
	// +optional
	// +listType=map
	// +listMapKey=name
	Initializers []Initializer `json:"initializers,omitempty" patchStrategy:"merge" patchMergeKey:"name" protobuf:"bytes,2,rep,name=initializers"`
}

// InitializerConfigurationList is a list of InitializerConfiguration.
type InitializerConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds
	// +optional
	metav1.ListMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`

	// List of InitializerConfiguration.
	Items []InitializerConfiguration `json:"items" protobuf:"bytes,2,rep,name=items"`
}

// Initializer describes the name and the resources of an initializer.
type Initializer struct {
	// Name is the identifier of the initializer. It will be added to the object that needs to be initialized. Name should be fully qualified, e.g.,
	// alwayspullimages.kubernetes.io, where "alwayspullimages" is the name of the initializer, and kubernetes.io is the name of the organization. Required
	Name string `json:"name" protobuf:"bytes,1,opt,name=name"`

	// Rules describes what resources the initializer cares about. The initializer cares about an operation if it matches _any_ Rule. Rule.Resources must not
	// include subresources.
	// +optional
	// +listType=atomic
	Rules []Rule `json:"rules,omitempty" protobuf:"bytes,2,rep,name=rules"`
}

// Rule is a tuple of APIGroups, APIVersions, and Resources. It is recommended to make sure that all the tuple expansions are valid.
type Rule struct {
	// APIGroups is the API groups the resources belong to. '*' is all groups. If '*' is present, the length of the slice must be one. Required.
	// +optional
	// +listType=atomic
	APIGroups []string `json:"apiGroups,omitempty" protobuf:"bytes,1,rep,name=apiGroups"`

	// APIVersions is the API versions the resources belong to. '*' is all versions. If '*' is present, the length of the slice must be one. Required.
	// +optional
	// +listType=atomic
	APIVersions []string `json:"apiVersions,omitempty" protobuf:"bytes,2,rep,name=apiVersions"`

	// Resources is a list of resources this rule applies to. For example: 'pods' means pods. '*' means all resources, but not subresources. If '*' is present,
	// the length of the slice must be one. Required.
	// +optional
	// +listType=atomic
	Resources []string `json:"resources,omitempty" protobuf:"bytes,3,rep,name=resources"`
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (InitializerConfiguration) OpenAPIModelName() string {
	return "io.k8s.api.admissionregistration.v1alpha1.InitializerConfiguration"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (InitializerConfigurationList) OpenAPIModelName() string {
	return "io.k8s.api.admissionregistration.v1alpha1.InitializerConfigurationList"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (Initializer) OpenAPIModelName() string {
	return "io.k8s.api.admissionregistration.v1alpha1.Initializer"
}

// OpenAPIModelName returns the name of the type in OpenAPI documents.
func (Rule) OpenAPIModelName() string { return "io.k8s.api.admissionregistration.v1alpha1.Rule" }
