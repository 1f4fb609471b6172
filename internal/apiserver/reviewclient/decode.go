package reviewclient

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"
)

// Decode decodes a response into an object of the kind that it must have. A response without kind or apiVersion counts as one of it.
func Decode(body []byte, want schema.GroupVersionKind, into any) error {
	var kinds metav1.TypeMeta
	if err := json.UnmarshalCaseSensitivePreserveInts(body, &kinds); err != nil {
		return fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	version := want.GroupVersion().String()
	if kinds.Kind != "" && kinds.Kind != want.Kind || kinds.APIVersion != "" && kinds.APIVersion != version {
		return fmt.Errorf("expected a %s of %s in the response, got kind %q of apiVersion %q", want.Kind, version, kinds.Kind, kinds.APIVersion)
	}
	return json.UnmarshalCaseSensitivePreserveInts(body, into)
}
