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

// Prefix is what the names of an owner's pods begin with: its own name, and a dash if it still fits.
func Prefix(owner string) string {
	if p := owner + "-"; len(validation.NameIsDNSSubdomain(p, true)) == 0 {
		return p
	}
	return owner
}

const (
	suffixLength = 5
	// MaxPrefix is how much of a prefix goes into a name, as the server keeps generated names.
	MaxPrefix = 63 - suffixLength
)

// Name chooses the name of an owner's next pod. It looks as the server would generate it, but follows from the version of the owner that is
// acted on and what the pod is for: when a loop ends in the middle of its work and the next begins while requests are still under way, both
// ask for the same pods, and none is created twice. taken says which names there are already.
func Name(owner metav1.Object, prefix, what string, taken func(string) bool) string {
	return Names(owner, prefix, what, 1, taken)[0]
}

// Names chooses the names of an owner's next pods. Once the owner's status tells of them, its version, and so the names, are others.
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

// suffix is what text comes down to, in the characters that generated names are made of.
func suffix(text string) string {
	sum := sha256.Sum256([]byte(text))
	for i := range sum {
		sum[i] %= 27 // as many as there are of them, and no more than ASCII
	}
	return rand.SafeEncodeString(string(sum[:suffixLength]))
}

// TemplateHash names a pod template. collisions is how often another template turned out to have the same name. It is what upstream makes of the
// template, down to the last bit: what that prints depends on how the template was read, so it is read from protobuf, as upstream's are.
func TemplateHash(t *corev1.PodTemplateSpec, collisions *int32) string {
	read := t.DeepCopy() // encoding writes into quantities
	if data, err := read.Marshal(); err == nil {
		var again corev1.PodTemplateSpec
		if again.Unmarshal(data) == nil {
			read = &again
		}
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%v", dump.ForHash(*read))
	if collisions != nil {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(uint32(*collisions))))
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
