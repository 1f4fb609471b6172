package scheduling

import "k8s.io/apimachinery/pkg/labels"

// termKind is what a term of a pod on a node means for other pods.
type termKind byte

const (
	requiredAnti termKind = iota // required anti-affinity: pods that it matches may not be in the same domain
	required                     // required affinity: pods that it matches score higher, by a weight in the configuration
	preferred                    // preferred affinity, or with a negative weight anti-affinity
)

// heldTerms holds the terms of all pods on nodes, equal ones once, with the domains where such pods are.
type heldTerms struct {
	serial uint64
	terms  map[string]*heldTerm
	seen   []uint64    // by slot: the version of the node that was counted
	slots  [][]holding // by slot: what was counted of it
	filled int         // number of slots with any
}

// heldTerm is one term and, by domain, how many pods have it or the sum of their weights.
type heldTerm struct {
	kind  termKind
	term  *Term
	key   string
	index map[int32]int // by domain, in sums
	sums  []domainSum
}

type domainSum struct {
	domain int32
	slots  int32 // number of slots that hold it
	sum    int64
}

// holding is what one node contributes to a term.
type holding struct {
	term   *heldTerm
	domain int32
	amount int64
}

// heldAbout calls use with each term of the kinds that matches the pod. The sums are valid until the preparation ends.
func (h *shared) heldAbout(pod *Pod, s *Snapshot, use func(*heldTerm), kinds ...termKind) {
	h.refreshHeld(s)
	namespace := labels.Set(s.namespaces[pod.Namespace])
	for _, t := range h.held.terms {
		for _, kind := range kinds {
			if t.kind == kind && t.term.Matches(pod, namespace) {
				use(t)
			}
		}
	}
}

func (h *shared) refreshHeld(s *Snapshot) {
	t := &h.held
	if t.serial == s.serial {
		return
	}
	if grow := int(h.slots) - len(t.seen); grow > 0 {
		t.seen, t.slots = append(t.seen, make([]uint64, grow)...), append(t.slots, make([][]holding, grow)...)
	}
	keys := map[string]nodeDomains{}
	place := func(key string, n *Node) int32 {
		of, known := keys[key]
		if !known {
			of, _ = h.nodeDomains(key, s)
			keys[key] = of
		}
		return of[n.slot]
	}
	filled := 0
	for _, n := range s.nodes {
		if t.seen[n.slot] != n.version {
			t.drop(n.slot)
			t.count(n, place)
			t.seen[n.slot] = n.version
		}
		if len(t.slots[n.slot]) > 0 {
			filled++
		}
	}
	if filled != t.filled {
		t.dropAllBut(s.nodes)
	}
	t.serial = s.serial
}

// count counts the terms of the node's pods.
func (t *heldTerms) count(n *Node, domainOf func(key string, n *Node) int32) {
	var list []holding
	hold := func(kind termKind, term *Term, amount int64) {
		domain := domainOf(term.TopologyKey, n)
		if domain == noDomain {
			return
		}
		held := t.term(kind, term)
		for i := range list {
			if list[i].term == held {
				list[i].amount += amount
				return
			}
		}
		list = append(list, holding{held, domain, amount})
	}
	for _, p := range n.WithAffinity {
		for i := range p.RequiredAntiAffinity {
			hold(requiredAnti, &p.RequiredAntiAffinity[i], 1)
		}
		for i := range p.RequiredAffinity {
			hold(required, &p.RequiredAffinity[i], 1)
		}
		for i := range p.PreferredAffinity {
			hold(preferred, &p.PreferredAffinity[i].Term, int64(p.PreferredAffinity[i].Weight))
		}
		for i := range p.PreferredAntiAffinity {
			hold(preferred, &p.PreferredAntiAffinity[i].Term, -int64(p.PreferredAntiAffinity[i].Weight))
		}
	}
	for _, l := range list {
		l.term.add(l.domain, l.amount)
	}
	if t.slots[n.slot] = list; len(list) > 0 {
		t.filled++
	}
}

func (t *heldTerms) term(kind termKind, term *Term) *heldTerm {
	key := string([]byte{byte(kind)}) + term.key
	held := t.terms[key]
	if held == nil {
		held = &heldTerm{kind: kind, term: term, key: key, index: map[int32]int{}}
		t.terms[key] = held
	}
	return held
}

// drop reverts what was counted of a slot.
func (t *heldTerms) drop(slot int32) {
	if len(t.slots[slot]) == 0 {
		return
	}
	for _, l := range t.slots[slot] {
		if l.term.remove(l.domain, l.amount); len(l.term.sums) == 0 {
			delete(t.terms, l.term.key)
		}
	}
	t.slots[slot], t.seen[slot] = nil, 0
	t.filled--
}

// dropAllBut reverts what was counted of nodes that are gone.
func (t *heldTerms) dropAllBut(nodes []*Node) {
	present := make([]bool, len(t.slots))
	for _, n := range nodes {
		present[n.slot] = true
	}
	for slot := range t.slots {
		if !present[slot] {
			t.drop(int32(slot))
		}
	}
}

func (t *heldTerm) add(domain int32, amount int64) {
	i, known := t.index[domain]
	if !known {
		i = len(t.sums)
		t.index[domain] = i
		t.sums = append(t.sums, domainSum{domain: domain})
	}
	t.sums[i].slots++
	t.sums[i].sum += amount
}

func (t *heldTerm) remove(domain int32, amount int64) {
	i := t.index[domain]
	t.sums[i].slots--
	t.sums[i].sum -= amount
	if t.sums[i].slots > 0 {
		return
	}
	last := len(t.sums) - 1
	t.sums[i] = t.sums[last]
	t.index[t.sums[i].domain] = i
	delete(t.index, domain)
	t.sums = t.sums[:last]
}
