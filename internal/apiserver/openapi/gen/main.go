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
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	apiregistrationv1beta1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/apiserver/openapi/routes"
	"skiff/internal/catalog"
	"skiff/internal/catalog/admissionregistration/v1alpha1"
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
	own, err := endpoints(fromCatalog(all.Resources()), scheme)
	if err != nil {
		return err
	}
	names, err := newNamer(scheme)
	if err != nil {
		return err
	}
	built, err := buildDocuments(own, names)
	if err != nil {
		return err
	}
	if err := writeDocuments(documents, built); err != nil {
		return err
	}
	if _, _, err := writeAdded(documents, "metrics", metricsv1beta1.SchemeGroupVersion, metrics.Resources(), metricsv1beta1.AddToScheme); err != nil {
		return err
	}
	former, names, err := writeAdded(documents, "initializers", v1alpha1.GroupVersion, all.Former(), v1alpha1.AddToScheme)
	if err != nil {
		return err
	}
	return writeMergeSchema(merge, append(own, former...), names)
}

// writeAdded writes the documents of a group version that kube-apiserver of today does not have: it has a scheme and documents apart.
func writeAdded(folder, name string, gv schema.GroupVersion, infos []*catalog.Info, addToScheme func(*runtime.Scheme) error) ([]*routes.Endpoint, namer, error) {
	scheme := kubernetesScheme()
	if err := addToScheme(scheme); err != nil {
		return nil, nil, err
	}
	endpoints, err := endpoints(fromCatalog(infos), scheme)
	if err != nil {
		return nil, nil, err
	}
	names, err := newNamer(scheme)
	if err != nil {
		return nil, nil, err
	}
	return endpoints, names, writeDocumentsOf(filepath.Join(folder, "added", name), routes.GroupVersion(gv, endpoints), names)
}

// writeDocumentsOf writes the documents of one service to files that begin with a path.
func writeDocumentsOf(path string, service *routes.Service, names namer) error {
	v2, err := buildV2([]*routes.Service{service}, names)
	if err != nil {
		return err
	}
	v3, err := buildV3(service, names)
	if err != nil {
		return err
	}
	for version, document := range map[string]json.Marshaler{"v2": v2, "v3": v3} {
		data, err := document.MarshalJSON()
		if err != nil {
			return err
		}
		if err := writeGzip(path+"."+version+".json.gz", data); err != nil {
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
