package mutating

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kjson "k8s.io/apimachinery/pkg/util/json"
	celmutation "k8s.io/apiserver/pkg/cel/mutation"
	"k8s.io/apiserver/pkg/cel/mutation/dynamic"
)

// maxOperations bounds a patch. Upstream has no bound but the cost of the expression, which allows more than anybody writes.
const maxOperations = 10000

// applyJSONPatch returns the content of an object with a patch, the value of an expression, applied. A patch whose test fails changes nothing.
func applyJSONPatch(content map[string]any, value ref.Val) (map[string]any, error) {
	patch, err := readJSONPatch(value)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("failed to create JSON patch: %w", err)
	}
	patched, err := patch.Apply(encoded)
	if errors.Is(err, jsonpatch.ErrTestFailed) {
		return content, nil
	}
	if err != nil {
		return nil, fmt.Errorf("JSON Patch: %w", err)
	}
	var result map[string]any
	if err := kjson.Unmarshal(patched, &result); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return result, nil
}

func readJSONPatch(value ref.Val) (jsonpatch.Patch, error) {
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, errors.New("type mismatch: JSONPatchType.expression should evaluate to array")
	}
	patch := jsonpatch.Patch{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		native, err := it.Next().ConvertToNative(reflect.TypeFor[*celmutation.JSONPatchVal]())
		if err != nil {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch: %w", err)
		}
		read, ok := native.(*celmutation.JSONPatchVal)
		if !ok {
			return nil, fmt.Errorf("type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %T", native)
		}
		if len(patch) == maxOperations {
			return nil, fmt.Errorf("JSON Patch: must not have more than %d operations", maxOperations)
		}
		operation, err := newOperation(read)
		if err != nil {
			return nil, err
		}
		patch = append(patch, operation)
	}
	return patch, nil
}

func newOperation(v *celmutation.JSONPatchVal) (jsonpatch.Operation, error) {
	operation := jsonpatch.Operation{"op": quote(v.Op), "path": quote(v.Path)}
	if v.From != "" {
		operation["from"] = quote(v.From)
	}
	if v.Val == nil {
		return operation, nil
	}
	if object, ok := v.Val.(*dynamic.ObjectVal); ok {
		if err := object.CheckTypeNamesMatchFieldPathNames(); err != nil {
			return nil, fmt.Errorf("type mismatch: %w", err)
		}
	}
	const failed = "JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w"
	native, err := v.Val.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	encoded, err := json.Marshal(native)
	if err != nil {
		return nil, fmt.Errorf(failed, err)
	}
	raw := json.RawMessage(encoded)
	operation["value"] = &raw
	return operation, nil
}

func quote(s string) *json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil { // a string can always be encoded
		raw = []byte(`""`)
	}
	message := json.RawMessage(raw)
	return &message
}
