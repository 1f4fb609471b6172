package verbs

import (
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/response"
)

// unfitError says that what a patch makes of an object is not one of its kind.
type unfitError struct {
	error
	shown string
}

// invalidPatch refuses a patch, and shows what it would have made, unless that is a secret: it holds what is stored, too.
func (rq *Request) invalidPatch(shown string, err error) error {
	if codec.Confidential(rq.Endpoint.Info.GVK) {
		shown = codec.Withheld
	}
	return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), shown, err.Error())})
}

// withheld takes what it shows of a secret out of an error about a patch.
func (rq *Request) withheld(err error) error {
	if err == nil || !codec.Confidential(rq.Endpoint.Info.GVK) {
		return err
	}
	status := response.StatusOf(err)
	status.Message = codec.Withhold(status.Message)
	return &apierrors.StatusError{ErrStatus: status}
}
