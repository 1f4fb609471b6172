package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apitest"
	"skiff/internal/journey"
)

// ranked returns the scores of that many nodes.
func ranked(nodes int) (*scored, *nodeOrder) {
	random := rand.New(rand.NewPCG(1, 2))
	s, order := &scored{plugins: []string{"NodeResourcesFit", "TaintToleration", "PodTopologySpread"}, weights: []int64{1, 3, 2}}, &nodeOrder{}
	for i := range nodes {
		s.positions = append(s.positions, int32(i))
		order.names = append(order.names, fmt.Sprint("node-", i))
	}
	for range nodes * len(s.plugins) {
		s.scores = append(s.scores, uint8(random.IntN(101)))
	}
	return s, order
}

func TestBest(t *testing.T) {
	for _, nodes := range []int{0, 1, 5, 8, 9, 300} {
		s, _ := ranked(nodes)
		all := make([]int, nodes)
		for i := range all {
			all[i] = i
		}
		slices.SortStableFunc(all, func(a, b int) int { return int(s.total(b) - s.total(a)) })
		if got, want := s.best(8), all[:min(nodes, 8)]; !slices.Equal(got, want) {
			t.Errorf("of %d nodes: %v, want %v", nodes, got, want)
		}
	}
	s := &scored{positions: []int32{0, 1}, plugins: []string{"A", "B"}, weights: []int64{1, 3}, scores: []uint8{10, 20, 30, 40}}
	if got := s.describe(1); got != "score 140: A 20, B 40 × 3" {
		t.Errorf("spelled %q", got)
	}
}

// BenchmarkRecordVerdicts measures recording the verdicts of a large cluster in a pod's journey.
func BenchmarkRecordVerdicts(b *testing.B) {
	recorder := journey.New(journey.Options{})
	s := apitest.Start(b, apitest.WithServer(func(o *apiserver.Options) { o.Journey = recorder }))
	client := s.InProcess("kube-scheduler", "system:kube-scheduler")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "0d9c2c9e-58c3-4a3a-9d6a-111111111111", ResourceVersion: "7"}}
	for _, nodes := range []int{3, 420} {
		scores, order := ranked(nodes)
		out := &outcome{scored: *scores, evaluated: nodes}
		b.Run(fmt.Sprint(nodes, " nodes"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				span := client.Begin(pod, journey.Schedule)
				recordVerdicts(span, 1, "node-1", order, out)
				span.End(nil)
			}
		})
	}
}
