package conversion

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog/custom"
)

// reviewVersion returns the first of the versions that a webhook accepts and this package knows.
func reviewVersion(accepted []string) (string, error) {
	for _, v := range accepted {
		if v == "v1" || v == "v1beta1" {
			return v, nil
		}
	}
	return "", errors.New("no supported conversion review versions")
}

// kind is that of reviews in a version.
func kind(version string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: apiextensionsv1.GroupName, Version: version, Kind: "ConversionReview"}
}

// encode returns the JSON of an object, spliced of what is encoded already.
func encode(o *custom.Object) ([]byte, error) {
	body, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	kind := o.Version().Kind()
	head := fmt.Appendf(nil, `{"apiVersion":%s,"kind":%s,`, strconv.Quote(kind.GroupVersion().String()), strconv.Quote(kind.Kind))
	return append(head, body[1:]...), nil
}

// request returns the body of a review.
func request(version, uid, apiVersion string, objects [][]byte) [2][]byte {
	head := fmt.Appendf(nil, `{"kind":"ConversionReview","apiVersion":"%s/%s","request":{"uid":%q,"desiredAPIVersion":%q,"objects":[`,
		apiextensionsv1.GroupName, version, uid, apiVersion)
	tail := bytes.Join(objects, []byte(","))
	return [2][]byte{head, append(tail, `]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}`...)}
}

// decode decodes the answer to a review of a version.
func decode(body []byte, version string) (*apiextensionsv1.ConversionReview, error) {
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
	answer := &apiextensionsv1.ConversionReview{} // v1beta1 has the same fields
	if err := kjson.UnmarshalCaseSensitivePreserveInts(body, answer); err != nil {
		return nil, err
	}
	return answer, nil
}

// verify returns the objects of an answer to the review with a uid.
func verify(answer *apiextensionsv1.ConversionReview, version string, uid types.UID) ([]runtime.RawExtension, error) {
	r := answer.Response
	if version == "v1" { // of v1beta1 neither kind nor uid were ever verified
		switch got := answer.GroupVersionKind(); {
		case got != kind(version):
			return nil, fmt.Errorf("expected webhook response of %v, got %v", kind(version), got)
		case r != nil && r.UID != uid:
			return nil, fmt.Errorf("expected response.uid=%q, got %q", uid, r.UID)
		}
	}
	switch {
	case r == nil:
		return nil, errors.New("no response provided")
	case r.Result.Status == metav1.StatusSuccess:
		return r.ConvertedObjects, nil
	case r.Result.Message != "":
		return nil, errors.New(r.Result.Message)
	default:
		return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", r.Result.Status)
	}
}
