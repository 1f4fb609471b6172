//go:build linux

package proxytest

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/network/proxy/model"
)

// pausedMode is a mode that does nothing, so that several changes come into effect together later.
type pausedMode struct{ model.Mode }

func (pausedMode) Sync(context.Context, *model.State, model.Changes) error { return nil }
func (pausedMode) FlowsInKernel() bool                                     { return false }

// testChurn makes random changes, from a printed seed, and checks each of them with packets.
func testChurn(t *testing.T, w *Cluster) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	names := []string{"pod0", "pod1", "pod2", "far"}
	some := func() []string {
		var out []string
		for _, n := range names {
			if random.IntN(2) == 0 {
				out = append(out, n)
			}
		}
		return out
	}
	type entry struct {
		*Service
		endpoints []string
	}
	var all []*entry
	for range 5 {
		e := &entry{endpoints: some()}
		e.Service = w.NewService(t, nil, e.endpoints...)
		all = append(all, e)
	}
	for range 25 {
		e := all[random.IntN(len(all))]
		switch random.IntN(5) {
		case 0, 1, 2:
			e.endpoints = some()
			e.SetEndpoints(t, e.endpoints...)
		case 3:
			e.Update(t, func(s *corev1.Service) {
				if s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP {
					s.Spec.SessionAffinity = corev1.ServiceAffinityNone
				} else {
					s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
				}
			})
		case 4:
			if random.IntN(4) == 0 && !w.options.EndsOnClose {
				w.Restart(t)
			}
		}
		for _, e := range all {
			for _, network := range protocols {
				if len(e.endpoints) == 0 {
					w.ExpectsRefusal(t, w.Pods[0], network, e.At(model.IPv4))
				} else {
					w.Expects(t, w.Pods[0], network, e.At(model.IPv4), "", e.endpoints...)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
}
