package main

import (
	"encoding/json"
	"flag"
	"log"
	"path/filepath"

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
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/apiserver/openapi/routes"
	"skiff/internal/catalog/all"
	"skiff/internal/catalog/metrics"
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
	if err := writeMetrics(documents); err != nil {
		return err
	}
	return writeMergeSchema(merge, endpoints, names)
}

// writeMetrics writes the documents of metrics.k8s.io, which is not one of kube-apiserver's own groups: it has a scheme and documents apart.
func writeMetrics(folder string) error {
	scheme := kubernetesScheme()
	if err := metricsv1beta1.AddToScheme(scheme); err != nil {
		return err
	}
	endpoints, err := endpoints(fromCatalog(metrics.Resources()), scheme)
	if err != nil {
		return err
	}
	names, err := newNamer(scheme)
	if err != nil {
		return err
	}
	service := routes.GroupVersion(metricsv1beta1.SchemeGroupVersion, endpoints)
	v2, err := buildV2([]*routes.Service{service}, names)
	if err != nil {
		return err
	}
	v3, err := buildV3(service, names)
	if err != nil {
		return err
	}
	for name, document := range map[string]json.Marshaler{"v2": v2, "v3": v3} {
		data, err := document.MarshalJSON()
		if err != nil {
			return err
		}
		if err := writeGzip(filepath.Join(folder, "added", "metrics."+name+".json.gz"), data); err != nil {
			return err
		}
	}
	return nil
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
