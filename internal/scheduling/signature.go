package scheduling

import (
	"encoding/binary"
	"maps"
	"slices"
)

// Signature returns a key that is equal for pods that checks which are not Adjustable and scorers that are Local cannot distinguish: their results about
// a node for one hold for the other, as long as it is the same *Node. Pods of one Deployment have the same signature, and so have those of many others.
func (*Snapshot) Signature(pod *Pod) string {
	k := signature{make([]byte, 0, 256)}
	k.text(pod.Spec.NodeName)
	k.resources(&pod.Requests)
	k.numbers(pod.scoreNonZero.MilliCPU, pod.scoreNonZero.Memory)
	if pod.scoreRequests != nil {
		k.resources(pod.scoreRequests)
	}
	k.numbers(int64(len(pod.features)))
	k.text(pod.features...)
	k.numbers(int64(len(pod.HostPorts)))
	for _, p := range pod.HostPorts {
		k.text(p.IP, string(p.Protocol))
		k.numbers(int64(p.Port))
	}
	k.numbers(int64(len(pod.Spec.Tolerations)))
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		k.text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
	k.numbers(int64(len(pod.Spec.NodeSelector)))
	for _, key := range slices.Sorted(maps.Keys(pod.Spec.NodeSelector)) {
		k.text(key, pod.Spec.NodeSelector[key])
	}
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		// NodeAffinity has no maps, so equal ones have the same encoding.
		encoded, _ := a.NodeAffinity.Marshal()
		k.bytes = append(k.bytes, encoded...)
	}
	return string(k.bytes)
}

// signature is an encoding that is equal for equal values only.
type signature struct{ bytes []byte }

func (k *signature) numbers(values ...int64) {
	for _, v := range values {
		k.bytes = binary.AppendVarint(k.bytes, v)
	}
}

func (k *signature) text(values ...string) {
	for _, v := range values {
		k.numbers(int64(len(v)))
		k.bytes = append(k.bytes, v...)
	}
}

func (k *signature) resources(r *Resources) {
	k.numbers(r.MilliCPU, r.Memory, r.EphemeralStorage, int64(len(r.Scalars)))
	for _, s := range r.Scalars {
		k.text(string(s.Name))
		k.numbers(s.Amount)
	}
}
