package scheduler

import "container/heap"

// podHeap is a heap of pods in an order.
type podHeap struct {
	pods []*queuedPod
	less func(a, b *queuedPod) bool
}

func (h *podHeap) push(p *queuedPod)   { heap.Push(h, p) }
func (h *podHeap) pop() *queuedPod     { return heap.Pop(h).(*queuedPod) }
func (h *podHeap) remove(p *queuedPod) { heap.Remove(h, p.index) }
func (h *podHeap) fix(p *queuedPod)    { heap.Fix(h, p.index) }

// Len implements heap.Interface.
func (h *podHeap) Len() int { return len(h.pods) }

// Less implements heap.Interface.
func (h *podHeap) Less(i, j int) bool { return h.less(h.pods[i], h.pods[j]) }

// Swap implements heap.Interface.
func (h *podHeap) Swap(i, j int) {
	h.pods[i], h.pods[j] = h.pods[j], h.pods[i]
	h.pods[i].index, h.pods[j].index = i, j
}

// Push implements heap.Interface.
func (h *podHeap) Push(x any) {
	p := x.(*queuedPod)
	p.index = len(h.pods)
	h.pods = append(h.pods, p)
}

// Pop implements heap.Interface.
func (h *podHeap) Pop() any {
	last := len(h.pods) - 1
	p := h.pods[last]
	h.pods[last] = nil
	h.pods = h.pods[:last]
	return p
}
