package codec

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog/custom"
)

// Strictness is the value of the fieldValidation parameter: what happens to unknown and duplicate fields.
type Strictness string

const (
	Ignore Strictness = "Ignore"
	Warn   Strictness = "Warn"
	Strict Strictness = "Strict"
)

// Decode decodes a request body of the expected kind into obj. It returns warnings about fields it ignored. A body without a kind is taken
// to be of the expected one.
func Decode(body []byte, media Media, expect schema.GroupVersionKind, obj runtime.Object, strictness Strictness) ([]string, error) {
	strict, gvk, err := decode(body, media, expect, obj, strictness)
	var unrecognized *unrecognizedError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &unrecognized):
		reason, excerpt := err.Error(), summary(unrecognized.body)
		if Confidential(expect) {
			reason, excerpt = Withhold(reason), Withheld
		}
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object provided is unrecognized (must be of type %s): %s (%s)", expect.Kind, reason, excerpt))
	case errors.As(err, &status):
		return nil, err
	case err != nil:
		return nil, cannotHandle(gvk, expect, err)
	}
	// The URL determines the kind; the TypeMeta of the body would end up in storage.
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return strictResult(strict, gvk, expect, strictness)
}

// DecodeOptions decodes the options of a request from its body. Clients send them in the group version of the resource, so any group version
// is accepted.
func DecodeOptions(body []byte, media Media, kind string, options runtime.Object) error {
	expect := schema.GroupVersionKind{Version: "v1", Kind: kind}
	if sent, err := kindOf(body, media); err == nil && sent.Kind == kind {
		expect = sent
	}
	_, gvk, err := decode(body, media, expect, options, Ignore)
	switch {
	case err == nil:
		options.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		return nil
	case gvk.Kind != kind:
		return apierrors.NewBadRequest(runtime.NewNotRegisteredErrForKind(SchemeName, gvk).Error())
	}
	return apierrors.NewBadRequest(err.Error())
}

// SchemeName is the place where upstream registers its kinds, for upstream's error texts.
const SchemeName = "pkg/runtime/scheme.go:111"

func kindOf(body []byte, media Media) (gvk schema.GroupVersionKind, err error) {
	switch media {
	case Protobuf:
		_, gvk, err = OpenEnvelope(body)
	case YAML:
		if body, err = yaml.YAMLToJSON(body); err == nil {
			gvk, err = KindOf(body)
		}
	default:
		gvk, err = KindOf(body)
	}
	return gvk, err
}

func decode(body []byte, media Media, expect schema.GroupVersionKind, obj runtime.Object, strictness Strictness) (strict []error, gvk schema.GroupVersionKind, err error) {
	switch media {
	case Protobuf:
		gvk, err = decodeProtobuf(body, expect, obj)
		return nil, gvk, err
	case YAML:
		return decodeYAML(body, expect, obj, strictness)
	default:
		return decodeJSON(body, expect, obj, strictness)
	}
}

// unrecognizedError is the error for a body that is not an object with a kind.
type unrecognizedError struct {
	error
	body []byte
}

// strictResult turns strict decoding errors into warnings or into a BadRequest error.
func strictResult(strict []error, gvk, expect schema.GroupVersionKind, strictness Strictness) ([]string, error) {
	if len(strict) == 0 || strictness == Ignore {
		return nil, nil
	}
	if strictness == Strict {
		return nil, cannotHandle(gvk, expect, runtime.NewStrictDecodingError(strict))
	}
	var warnings []string
	for _, e := range strict {
		warnings = append(warnings, Lines(e)...)
	}
	return warnings, nil
}

// Lines returns the problems that an error of the YAML library lists in lines. Any other error is one problem.
func Lines(err error) []string {
	rest, several := strings.CutPrefix(err.Error(), "yaml: unmarshal errors:\n")
	if !several {
		return []string{err.Error()}
	}
	lines := strings.Split(rest, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return lines
}

func cannotHandle(gvk, expect schema.GroupVersionKind, err error) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", gvk.Kind, gvk.Version, expect.Kind, err))
}

func decodeProtobuf(body []byte, expect schema.GroupVersionKind, obj runtime.Object) (schema.GroupVersionKind, error) {
	message, gvk, err := OpenEnvelope(body)
	if err != nil {
		return expect, &unrecognizedError{err, body}
	}
	if gvk, err = checkKind(gvk, expect); err != nil {
		return gvk, err
	}
	m, ok := obj.(interface{ Unmarshal([]byte) error })
	if !ok {
		return gvk, fmt.Errorf("object %T has no protobuf form", obj)
	}
	return gvk, m.Unmarshal(message)
}

func decodeYAML(body []byte, expect schema.GroupVersionKind, obj runtime.Object, strictness Strictness) ([]error, schema.GroupVersionKind, error) {
	asJSON, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, expect, &unrecognizedError{err, body}
	}
	var strict []error
	if strictness != Ignore {
		if _, err := yaml.YAMLToJSONStrict(body); err != nil {
			strict = append(strict, err)
		}
	}
	more, gvk, err := decodeJSON(asJSON, expect, obj, strictness)
	var unrecognized *unrecognizedError
	if errors.As(err, &unrecognized) {
		unrecognized.body = body // the YAML that the client sent
	}
	return append(strict, more...), gvk, err
}

func decodeJSON(body []byte, expect schema.GroupVersionKind, obj runtime.Object, strictness Strictness) ([]error, schema.GroupVersionKind, error) {
	gvk, err := KindOf(body)
	if err != nil {
		return nil, expect, &unrecognizedError{err, body}
	}
	if _, custom := obj.(*custom.Object); custom {
		if gvk.Kind == "" {
			return nil, expect, &unrecognizedError{runtime.NewMissingKindErr(string(body)), body}
		}
		gvk, err = checkCustomKind(gvk, expect)
	} else {
		gvk, err = checkKind(gvk, expect)
	}
	if err != nil {
		return nil, gvk, err
	}
	if strictness == Ignore {
		return nil, gvk, kjson.UnmarshalCaseSensitivePreserveInts(body, obj)
	}
	strict, err := UnmarshalStrict(body, obj)
	return strict, gvk, err
}

// UnmarshalStrict decodes JSON into an object. It also returns what is wrong with the JSON although it could be decoded: duplicate and unknown fields.
func UnmarshalStrict(body []byte, obj runtime.Object) (strict []error, err error) {
	if o, ok := obj.(interface {
		UnmarshalStrict([]byte) ([]error, error)
	}); ok { // a custom object, whose fields its schema knows
		strict, err = o.UnmarshalStrict(body)
	} else {
		strict, err = kjson.UnmarshalStrict(body, obj)
	}
	return withoutInitializers(strict), err
}

// KindOf returns the apiVersion and kind of a JSON object.
func KindOf(body []byte) (schema.GroupVersionKind, error) {
	var named struct { // its type appears in error texts
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(body, &named); err != nil {
		return schema.GroupVersionKind{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	gv, err := schema.ParseGroupVersion(named.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return gv.WithKind(named.Kind), nil
}

// checkKind returns the kind of a body, completed with the expected one, and an error if it is another.
func checkKind(gvk, expect schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if gvk.Kind == "" {
		gvk.Kind = expect.Kind
	}
	if gvk.Version == "" && gvk.Group == "" {
		gvk.Group, gvk.Version = expect.Group, expect.Version
	}
	switch {
	case gvk == expect:
		return gvk, nil
	case !recognizes(expect.Group, gvk):
		return gvk, runtime.NewNotRegisteredErrForKind(SchemeName, gvk)
	case gvk.GroupKind() == expect.GroupKind():
		return gvk, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gvk.GroupVersion(), expect.GroupVersion()))
	}
	return gvk, fmt.Errorf("converting (%s.%s) to (%s): unknown conversion", gvk.Version, gvk.Kind, InternalName(expect))
}

// checkCustomKind is checkKind for a custom object: another kind is an error of its validation.
func checkCustomKind(gvk, expect schema.GroupVersionKind) (schema.GroupVersionKind, error) {
	if gvk.GroupVersion() != expect.GroupVersion() {
		return gvk, apierrors.NewBadRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)", gvk.GroupVersion(), expect.GroupVersion()))
	}
	return gvk, nil
}

// InternalName returns the name of a kind in upstream's error texts.
func InternalName(gvk schema.GroupVersionKind) string {
	group, _, _ := strings.Cut(gvk.Group, ".")
	if group == "" {
		group = "core"
	}
	return group + "." + gvk.Kind
}

// summary returns the excerpt of a body that an error shows.
func summary(body []byte) string {
	const longest = 30
	more := ""
	if len(body) > longest {
		body, more = body[:longest], " ..."
	}
	switch {
	case len(body) == 0:
		return "<empty>"
	case body[0] == '{':
		return string(body) + more
	default:
		return hex.EncodeToString(body) + more
	}
}
