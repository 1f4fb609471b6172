package owned

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

// Prefix returns what the names of an owner's pods begin with: the owner's name, and a dash if the name stays valid with it.
func Prefix(owner string) string {
	if p := owner + "-"; len(validation.NameIsDNSSubdomain(p, true)) == 0 {
		return p
	}
	return owner
}

const (
	suffixLength = 5
	// MaxPrefix is the longest prefix that goes into a name, as in names that the API server generates.
	MaxPrefix = 63 - suffixLength
)

// Name chooses the name of an owner's next pod. It looks like a generated name, but is derived from the owner's resourceVersion and what the pod
// is for: when a loop ends in the middle of its work and its successor starts while requests are in flight, both ask for the same pods, and
// none is created twice. taken reports whether a name is in use.
func Name(owner metav1.Object, prefix, what string, taken func(string) bool) string {
	return Names(owner, prefix, what, 1, taken)[0]
}

// Names chooses the names of an owner's next n pods. Once the owner's status has been updated, its resourceVersion, and so the names, differ.
func Names(owner metav1.Object, prefix, what string, n int, taken func(string) bool) []string {
	prefix = prefix[:min(len(prefix), MaxPrefix)]
	names, seen := make([]string, 0, n), make(map[string]bool, n)
	for i := 0; len(names) < n; i++ {
		name := prefix + suffix(string(owner.GetUID())+"/"+owner.GetResourceVersion()+"/"+what+"/"+strconv.Itoa(i))
		if !seen[name] && !taken(name) {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// suffix returns a hash of text in the characters that generated names consist of.
func suffix(text string) string {
	sum := sha256.Sum256([]byte(text))
	for i := range sum {
		sum[i] %= 27 // the number of those characters, which keeps each byte ASCII
	}
	return rand.SafeEncodeString(string(sum[:suffixLength]))
}

// TemplateHash returns the pod-template-hash of a template, equal to upstream's to the last bit. collisions is how often another template had the
// same hash. The printed form that is hashed depends on how the template was decoded, so it is decoded from protobuf, as upstream's are.
func TemplateHash(t *corev1.PodTemplateSpec, collisions *int32) string {
	read := t.DeepCopy() // encoding writes into quantities
	if data, err := read.Marshal(); err == nil {
		var decoded corev1.PodTemplateSpec
		if decoded.Unmarshal(data) == nil {
			read = &decoded
		}
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(*read))
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
