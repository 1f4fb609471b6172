package verbs

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/response"
)

// notOfKindError says that the result of a patch is not an object of the kind that was patched.
type notOfKindError struct {
	error
	resultText string
}

// invalidPatch refuses a patch. The error shows the result of the patch, unless that is a Secret: it would show stored data too.
func (rq *Request) invalidPatch(resultText string, err error) error {
	if codec.Confidential(rq.Endpoint.Info.GVK) {
		resultText = codec.Withheld
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), resultText, err.Error())})
}

// withoutSecrets removes the data of a Secret from an error about a patch.
func (rq *Request) withoutSecrets(err error) error {
	if err == nil || !codec.Confidential(rq.Endpoint.Info.GVK) {
		return err
	}
	status := response.StatusOf(err)
	status.Message = codec.Withhold(status.Message)
	return &apierrors.StatusError{ErrStatus: status}
}
