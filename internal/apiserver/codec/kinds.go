package codec

import (
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// recognizes reports whether the endpoints of a group know a kind of object, which decides what a client that sends it there is told. Upstream
// serves definitions and API services by servers of their own, which know their own kinds only, and the other endpoints know none of those.
func recognizes(group string, gvk schema.GroupVersionKind) bool {
	if own := extensionKinds()[group]; own != nil {
		return own.Recognizes(gvk)
	}
	return scheme.Scheme.Recognizes(gvk)
}

// extensionKinds returns the kinds of each group that has a server of its own upstream.
var extensionKinds = sync.OnceValue(func() map[string]*runtime.Scheme {
	return map[string]*runtime.Scheme{
		apiextensionsv1.GroupName: kindsOf(apiextensionsv1.GroupName,
			&apiextensionsv1.CustomResourceDefinition{}, &apiextensionsv1.CustomResourceDefinitionList{}, &apiextensionsv1.ConversionReview{}),
		apiregistrationv1.GroupName: kindsOf(apiregistrationv1.GroupName, &apiregistrationv1.APIService{}, &apiregistrationv1.APIServiceList{}),
	}
})

// kindsOf returns a scheme with the kinds of a group, in the versions that upstream still knows, and with what every group has. It is only
// asked which names it knows, so that one Go type does for all versions.
func kindsOf(group string, kinds ...runtime.Object) *runtime.Scheme {
	s := runtime.NewScheme()
	for _, version := range []string{"v1", "v1beta1"} {
		gv := schema.GroupVersion{Group: group, Version: version}
		s.AddKnownTypes(gv, kinds...)
		metav1.AddToGroupVersion(s, gv)
	}
	core := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(s, core)
	s.AddUnversionedTypes(core, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroup{}, &metav1.APIGroupList{}, &metav1.APIResourceList{})
	return s
}
