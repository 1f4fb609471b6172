package main

import (
	"flag"
	"log"

	admissionv1 "k8s.io/api/admission/v1"
	admissionv1beta1 "k8s.io/api/admission/v1beta1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsv1beta1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"

	"skiff/internal/catalog/all"
)

func main() {
	log.SetFlags(0)
	documents := flag.String("documents", "", "folder of package openapi, whose documents and index are written")
	merge := flag.String("mergeschema", "", "folder of package mergeschema, whose types are written")
	flag.Parse()
	if err := generate(*documents, *merge); err != nil {
		log.Fatal(err)
	}
}

func generate(documents, merge string) error {
	scheme := kubernetesScheme()
	endpoints, err := endpoints(fromCatalog(all.Resources()), scheme)
	if err != nil {
		return err
	}
	names, err := newNamer(scheme)
	if err != nil {
		return err
	}
	built, err := buildDocuments(endpoints, names)
	if err != nil {
		return err
	}
	if err := writeDocuments(documents, built); err != nil {
		return err
	}
	return writeMergeSchema(merge, endpoints, names)
}

// kubernetesScheme returns a scheme with every kind of kube-apiserver, served or not: DeleteOptions and WatchEvent list them all.
func kubernetesScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		scheme.AddToScheme,
		admissionv1.AddToScheme, admissionv1beta1.AddToScheme,
		imagepolicyv1alpha1.AddToScheme,
		apiextensionsv1.AddToScheme, apiextensionsv1beta1.AddToScheme,
		apiregistrationv1.AddToScheme, apiregistrationv1beta1.AddToScheme,
	} {
		utilruntime.Must(add(s))
	}
	return s
}
