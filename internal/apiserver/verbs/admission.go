package verbs

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
)

var _ admission.Origin = (*Request)(nil)

// annotations are what admission has to say to the audit log.
type annotations struct {
	mu    sync.Mutex
	bytes int
	list  []admission.Annotation
}

// maxAnnotations bounds the bytes of the audit annotations of a request.
const maxAnnotations = 256 << 10

// Annotate keeps an annotation for the audit log: the first of a key.
func (rq *Request) Annotate(n admission.Annotation) {
	a := &rq.annotations
	a.mu.Lock()
	defer a.mu.Unlock()
	known := slices.ContainsFunc(a.list, func(k admission.Annotation) bool { return k.Key == n.Key })
	if size := len(n.Key) + len(n.Value); !known && a.bytes+size <= maxAnnotations {
		a.bytes += size
		a.list = append(a.list, n)
	}
}

// AuditAnnotations returns the annotations of the request for the audit log.
func (rq *Request) AuditAnnotations() []admission.Annotation {
	rq.annotations.mu.Lock()
	defer rq.annotations.mu.Unlock()
	return slices.Clone(rq.annotations.list)
}

// AdmissionOptions returns the options of a create or update, as the parameters of the request have them.
func (rq *Request) AdmissionOptions(op admission.Operation) runtime.Object {
	dryRun, manager, validation := rq.Query["dryRun"], rq.Query.Get("fieldManager"), rq.Query.Get("fieldValidation")
	kind := func(name string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: schema.GroupVersion{Group: metav1.GroupName, Version: "v1"}.String(), Kind: name}
	}
	switch op {
	case admission.Create:
		return &metav1.CreateOptions{TypeMeta: kind("CreateOptions"), DryRun: dryRun, FieldManager: manager, FieldValidation: validation}
	case admission.Update:
		return &metav1.UpdateOptions{TypeMeta: kind("UpdateOptions"), DryRun: dryRun, FieldManager: manager, FieldValidation: validation}
	}
	return nil
}
