package review

import (
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"skiff/internal/apiserver/codec"
)

// kind is that of reviews in a version.
func kind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: admissionv1.GroupName, Version: version, Kind: "AdmissionReview"}
}

// Decode decodes the answer to a review of a version. Whether it answers that review is for Verify to say.
func Decode(body []byte, version string) (*admissionv1.AdmissionReview, error) {
	want := kind(version)
	got, err := codec.KindOf(body)
	if err != nil {
		return nil, err
	}
	if got.Kind == "" {
		got.Kind = want.Kind
	}
	if got.Group == "" && got.Version == "" {
		got.Group, got.Version = want.Group, want.Version
	}
	switch {
	case got == want:
	case got.Group == want.Group && got.Kind == want.Kind && (got.Version == "v1" || got.Version == "v1beta1"):
		return nil, fmt.Errorf("converting (%s.%s) to (%s.%s): unknown conversion", got.Version, got.Kind, want.Version, want.Kind)
	default:
		return nil, runtime.NewNotRegisteredErrForKind(codec.SchemeName, got)
	}
	answer := &admissionv1.AdmissionReview{} // v1beta1 has the same fields
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// Verify returns the response of an answer to the review with a uid. Its patch is nil, or a JSON patch.
func Verify(answer *admissionv1.AdmissionReview, version string, uid types.UID, mutating bool) (*admissionv1.AdmissionResponse, error) {
	r := answer.Response
	if r == nil {
		return nil, errors.New("webhook response was absent")
	}
	if version != "v1" { // of v1beta1 nothing was ever verified
		jsonPatch := admissionv1.PatchTypeJSONPatch
		r.PatchType = &jsonPatch
		if !mutating {
			r.Patch = nil
		}
		return r, nil
	}
	if r.UID != uid {
		return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
	}
	if got := answer.GroupVersionKind(); got != kind(version) {
		return nil, fmt.Errorf("expected webhook response of %v, got %v", kind(version), got)
	}
	switch {
	case !mutating && len(r.Patch) > 0:
		return nil, errors.New("validating webhook may not return response.patch")
	case !mutating && r.PatchType != nil:
		return nil, errors.New("validating webhook may not return response.patchType")
	case len(r.Patch) > 0 && r.PatchType == nil:
		return nil, errors.New("webhook returned response.patch but not response.patchType")
	case len(r.Patch) == 0 && r.PatchType != nil:
		return nil, errors.New("webhook returned response.patchType but not response.patch")
	case r.PatchType != nil && *r.PatchType == "":
		return nil, fmt.Errorf("webhook returned invalid response.patchType of %q", *r.PatchType)
	}
	return r, nil
}
