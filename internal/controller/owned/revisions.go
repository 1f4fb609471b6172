package owned

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

// TemplatePatch returns the content of a ControllerRevision: a patch that gives its owner this template. It equals upstream's to the byte, as
// revisions are compared by it.
func TemplatePatch(template *corev1.PodTemplateSpec) ([]byte, error) {
	data, err := json.Marshal(template)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, err
	}
	fields["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": fields}})
}

// PatchedTemplate returns the template that a ControllerRevision's content gives its owner.
func PatchedTemplate(patch []byte) (*corev1.PodTemplateSpec, error) {
	var content struct {
		Spec struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(patch, &content); err != nil {
		return nil, fmt.Errorf("failed to decode the template in a ControllerRevision: %w", err)
	}
	return &content.Spec.Template, nil
}

// PatchHash returns the hash of a ControllerRevision's content that StatefulSets name it by, equal to upstream's. collisions is how often other
// content had the same hash.
func PatchHash(patch []byte, collisions int32) string {
	h := fnv.New32()
	h.Write(patch)
	h.Write([]byte(strconv.FormatInt(int64(collisions), 10)))
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
