package subresources

import (
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// Bindings, evictions and reviews are created to have something done, and never stored. No other verb is served for them.

// requireCreate refuses everything but POST to the collection, or to a subresource of an object.
func requireCreate(rq *verbs.Request) error {
	rt := rq.Route
	if rt.Rest != "" || rt.Subresource == "" && rt.Name != "" {
		return response.ErrNotFound
	}
	if rt.Verb != "create" {
		return response.ErrMethodNotAllowed
	}
	return nil
}

// decodeAndAdmit decodes an object that is not stored from the body and takes it through mutating admission. The body may also be of one of the other
// kinds, which have the same fields.
func decodeAndAdmit(rq *verbs.Request, obj catalog.Object, gvk schema.GroupVersionKind, others ...schema.GroupVersionKind) (request.WriteOptions, error) {
	accept, err := codec.Negotiate(rq.Header.Get("Accept"))
	if err != nil {
		return request.WriteOptions{}, err
	}
	rq.Accept = accept
	opts, err := request.ParseWriteOptions(rq.Query, "CreateOptions", "")
	if err != nil {
		return opts, err
	}
	rq.Trace.Stage("decode")
	body, err := rq.ReadBody()
	if err != nil {
		return opts, err
	}
	if len(others) > 0 {
		if sent := sentKind(rq, body); slices.Contains(others, sent) {
			gvk = sent
		}
	}
	if err := rq.Decode(body, gvk, obj, opts.Strictness); err != nil {
		return opts, err
	}
	if err := registry.EnsureNamespace(obj, rq.Route.Namespace); err != nil {
		return opts, err
	}
	return opts, rq.API.Admission.Admit(rq.Ctx, createAttributes(rq, obj, opts), rq.Trace.Stage)
}

// sentKind returns the kind that a body has; the empty kind if the body cannot be read.
func sentKind(rq *verbs.Request, body []byte) schema.GroupVersionKind {
	media, err := codec.MediaOf(rq.Header.Get("Content-Type"))
	if err != nil {
		return schema.GroupVersionKind{}
	}
	var gvk schema.GroupVersionKind
	if media == codec.Protobuf {
		_, gvk, err = codec.OpenEnvelope(body)
	} else {
		gvk, err = codec.KindOf(body)
	}
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return gvk
}

// createAttributes returns the admission attributes of an object that is created and not stored.
func createAttributes(rq *verbs.Request, obj catalog.Object, opts request.WriteOptions) *admission.Attributes {
	attributes := rq.AdmissionAttributes(admission.Create, obj, nil, opts.DryRun)
	if attributes.Name == "" {
		attributes.Name = obj.GetName()
	}
	return attributes
}

// validateAdmission takes an object through validating admission.
func validateAdmission(rq *verbs.Request, obj catalog.Object, opts request.WriteOptions) error {
	return rq.API.Admission.Validate(rq.Ctx, createAttributes(rq, obj, opts), rq.Trace.Stage)
}

// sendSuccess answers with 201 and a Status of success.
func sendSuccess(rq *verbs.Request) error {
	return rq.SendStatus(&metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
}
