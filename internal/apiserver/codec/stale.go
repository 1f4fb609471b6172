package codec

import (
	"bytes"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Stale reports whether a stored value is of another version or encoding than Encode writes. An update writes such a value anew even if it changes
// nothing else: that is how stored objects are migrated.
func (s *Stored) Stale(value []byte) bool {
	if !s.asJSON {
		return !bytes.HasPrefix(value, s.head)
	}
	if IsProtobuf(value) {
		return true
	}
	kind := s.info.StorageKind()
	if bytes.HasPrefix(value, jsonHead(kind)) {
		return false
	}
	var stored metav1.TypeMeta // upstream writes the fields in another order
	return json.Unmarshal(value, &stored) != nil || stored.APIVersion != kind.GroupVersion().String() || stored.Kind != kind.Kind
}
