package scheduling

// tally holds how many pods match a selector, by slot.
type tally struct {
	serial uint64   // of the snapshot that it was counted for
	seen   []uint64 // by slot: the version of the node counted
	counts []int32
	used   uint64
}

// tally counts the pods that match, by slot. Equal keys must mean equal matches. The counts are valid until the preparation ends.
func (h *shared) tally(key string, s *Snapshot, match func(*Pod) bool) []int32 {
	t := h.tallies[key]
	if t == nil {
		h.makeRoom()
		t = &tally{}
		h.tallies[key] = t
	}
	t.used = h.next()
	if grow := int(h.slots) - len(t.counts); grow > 0 {
		t.seen, t.counts = append(t.seen, make([]uint64, grow)...), append(t.counts, make([]int32, grow)...)
	}
	if t.serial != s.serial {
		for _, n := range s.nodes {
			if t.seen[n.slot] != n.version {
				t.seen[n.slot], t.counts[n.slot] = n.version, countPods(n, match)
			}
		}
		t.serial = s.serial
	}
	return t.counts
}

func countPods(n *Node, match func(*Pod) bool) int32 {
	var count int32
	for _, p := range n.Pods {
		if match(p) {
			count++
		}
	}
	return count
}

// makeRoom drops the least recently used tally if there are too many.
func (h *shared) makeRoom() {
	if len(h.tallies) < maxTallies {
		return
	}
	var oldest string
	used := h.counter + 1
	for key, t := range h.tallies {
		if t.used < used {
			oldest, used = key, t.used
		}
	}
	delete(h.tallies, oldest)
}
