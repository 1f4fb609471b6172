package conversion

import (
	"fmt"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/custom"
)

// answerError says what is wrong with an answer, after the words "conversion webhook for KIND".
type answerError struct{ text string }

// Error implements error.
func (e *answerError) Error() string { return e.text }

// convertedObject returns what a webhook has made of an object: it must be the same object in the wanted version. where says which object of the answer it
// is.
func convertedObject(original *custom.Object, raw []byte, to *custom.Version, where string, index int) (*custom.Object, error) {
	invalid := func(format string, args ...any) error {
		return &answerError{"returned " + where + ": " + fmt.Sprintf(format, args...)}
	}
	u := unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		return nil, invalid("%v", err)
	}
	at := invalid
	if where == "invalid object" {
		at = func(format string, args ...any) error {
			return &answerError{fmt.Sprintf("returned invalid object at index %d: ", index) + fmt.Sprintf(format, args...)}
		}
	}
	got, want := u.GroupVersionKind(), original.Version().Kind()
	if got.GroupVersion() != to.Kind().GroupVersion() {
		return nil, at("invalid groupVersion (expected %v, received %v)", to.Kind().GroupVersion(), got.GroupVersion())
	}
	if got.Kind != want.Kind {
		return nil, at("invalid kind (expected %v, received %v)", want.Kind, got.Kind)
	}
	for _, same := range []struct {
		what                string
		original, converted any
	}{
		{"name", original.Name, u.GetName()}, {"namespace", original.Namespace, u.GetNamespace()}, {"UID", original.UID, u.GetUID()},
	} {
		if same.original != same.converted {
			return nil, invalid("must have the same %s: %v != %v", same.what, same.original, same.converted)
		}
	}
	labels, annotations, err := convertedMetadata(original, u.Object)
	if err != nil {
		if where == "invalid object" {
			return nil, &answerError{fmt.Sprintf("returned invalid metadata: %v", err)}
		}
		return nil, &answerError{fmt.Sprintf("returned invalid metadata in object at index %d: %v", index, err)}
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(u.Object, name)
	}
	return to.Derived(original, labels, annotations, u.Object), nil
}

// convertedMetadata returns the labels and annotations of a converted object, which are all that a webhook may change of the metadata.
func convertedMetadata(original *custom.Object, root map[string]any) (labels, annotations map[string]string, err error) {
	found, ok := root["metadata"]
	if !ok {
		return nil, nil, fmt.Errorf("missing metadata in converted object")
	}
	metadata, ok := found.(map[string]any)
	if !ok {
		return nil, nil, fmt.Errorf("invalid metadata of type %T in converted object", found)
	}
	if labels, err = stringMap(metadata, "labels"); err != nil {
		return nil, nil, err
	}
	if !sameStrings(labels, original.Labels) {
		if errs := validation.ValidateLabels(labels, field.NewPath("metadata", "labels")); len(errs) > 0 {
			return nil, nil, errs.ToAggregate()
		}
	}
	if annotations, err = stringMap(metadata, "annotations"); err != nil {
		return nil, nil, err
	}
	if !sameStrings(annotations, original.Annotations) {
		if errs := apivalidation.ValidateAnnotations(annotations, field.NewPath("metadata", "annotation")); len(errs) > 0 {
			return nil, nil, errs.ToAggregate()
		}
	}
	return labels, annotations, nil
}

// stringMap returns a field of metadata whose values are strings.
func stringMap(metadata map[string]any, name string) (map[string]string, error) {
	found := metadata[name]
	if found == nil {
		return nil, nil
	}
	values, ok := found.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("invalid metadata.%s of type %T in converted object", name, found)
	}
	texts := make(map[string]string, len(values))
	for key, value := range values {
		text, ok := value.(string)
		if !ok {
			return nil, fmt.Errorf("metadata.%s[%s] must be a string, but is %T in converted object", name, key, value)
		}
		texts[key] = text
	}
	return texts, nil
}

func sameStrings(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, ok := b[key]; !ok || other != value {
			return false
		}
	}
	return true
}
