// Package v1alpha1 has the Go types of InitializerConfiguration, which k8s.io/api had until v1.13, with their protobuf messages.
//
// It must not import any package of skiff.
//
// +k8s:openapi-gen=true
// +k8s:openapi-model-package=io.k8s.api.admissionregistration.v1alpha1
// +groupName=admissionregistration.k8s.io
package v1alpha1
