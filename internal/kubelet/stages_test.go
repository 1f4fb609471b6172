package kubelet

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every stage of a pod's start is reported, each after the stages it needs, however short it is.
func TestStages(t *testing.T) {
	w := newFixture(t)
	w.stop()
	var mu sync.Mutex
	told := map[string][]Stage{} // by pod
	w.start(func(o *Options) {
		o.Stage = func(s Stage) {
			mu.Lock()
			defer mu.Unlock()
			told[s.Pod.Name] = append(told[s.Pod.Name], s)
		}
	})
	answers := make(chan struct{})
	w.runtime.OnExec(func(string, []string) (*runtimeapi.ExecSyncResponse, error) {
		select {
		case <-answers:
			return &runtimeapi.ExecSyncResponse{}, nil
		default:
			return &runtimeapi.ExecSyncResponse{ExitCode: 1}, nil
		}
	})
	w.create("plain", "{containers: [{name: a, image: nginx}]}")
	w.create("probed", "{containers: [{name: a, image: nginx, readinessProbe: {exec: {command: [ready]}, periodSeconds: 1}}]}")
	w.await("plain", ready)
	w.awaitEvent("probed", "Warning Unhealthy Readiness probe failed")
	close(answers)
	w.await("probed", ready)
	for pod, probes := range map[string]bool{"plain": false, "probed": true} {
		var all []Stage
		w.eventually(func() string {
			mu.Lock()
			defer mu.Unlock()
			if all = slices.Clone(told[pod]); len(all) == 0 || all[len(all)-1].Name != StageReady {
				return "pod " + pod + " is ready, but nobody was told"
			}
			return ""
		})
		at := map[string]Stage{}
		for _, s := range all {
			if _, twice := at[s.Name]; twice || s.Err != nil || s.End.Before(s.Start) || s.Start.IsZero() {
				t.Errorf("%s: %s from %v to %v: %v", pod, s.Name, s.Start, s.End, s.Err)
			}
			at[s.Name] = s
		}
		order := []string{StagePickup, StageVolumes, StageSandbox, StageCreate, StageStart, StageProbes, StageReady}
		for i, name := range order {
			if _, there := at[name]; !there {
				t.Fatalf("%s: no stage %s", pod, name)
			}
			if i > 0 && at[name].End.Before(at[order[i-1]].End) {
				t.Errorf("%s: %s ends before %s", pod, name, order[i-1])
			}
		}
		if _, there := at[StageImage]; !there || len(at) != len(order)+1 {
			t.Errorf("%s: stages %v", pod, at)
		}
		took := at[StageProbes].End.Sub(at[StageProbes].Start)
		if probes != (took > 0) || probes && at[StageProbes].Start.Before(at[StageStart].End) {
			t.Errorf("%s: probes took %v, from %v; the container was started at %v", pod, took, at[StageProbes].Start, at[StageStart].End)
		}
	}
}

// The metrics have the numbers of pods and containers, and the results of probes.
func TestCounts(t *testing.T) {
	w := newFixture(t)
	w.create("web", "{containers: [{name: a, image: nginx, readinessProbe: {exec: {command: [ready]}, periodSeconds: 1}}, {name: b, image: nginx}]}")
	pod := w.await("web", ready)
	w.runtime.Exit(w.container(pod.UID, "b").ID, 0)
	w.eventually(func() string {
		got := gather(t, w.kubelet.Metrics())
		for name, want := range map[string]float64{"kubelet_node_name{node=n1}": 1, "kubelet_desired_pods{static=}": 1, "kubelet_running_pods{}": 1, "kubelet_started_containers_total{container_type=container}": 3,
			"kubelet_running_containers{container_state=running}": 2, "kubelet_running_containers{container_state=exited}": 0} {
			if got[name] != want {
				return name + " is not as it should be"
			}
		}
		return ""
	})
	probes := gather(t, w.kubelet.ProbeMetrics())
	if n := probes["prober_probe_total{container=a,namespace=default,pod=web,pod_uid="+string(pod.UID)+",probe_type=Readiness,result=successful}"]; n < 1 {
		t.Errorf("probes: %v", probes)
	}
	w.delete("web", 0)
	w.awaitClean()
	if got := gather(t, w.kubelet.Metrics()); got["kubelet_running_pods{}"] != 0 || got["kubelet_running_containers{container_state=running}"] != 0 {
		t.Errorf("without pods: %v", got)
	}
}

// gather returns counters and gauges by name and labels.
func gather(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// A kubelet is unhealthy when its relist loop has come to a halt.
func TestHealthy(t *testing.T) {
	var h loopMonitor
	now := time.Now()
	if err := h.check(now); err != nil {
		t.Errorf("before it began: %v", err)
	}
	h.mark()
	if err := h.check(now.Add(maxLoopInterval)); err != nil {
		t.Errorf("while it goes on: %v", err)
	}
	if err := h.check(now.Add(maxLoopInterval + time.Minute)); err == nil || err.Error() != "sync Loop took longer than expected" {
		t.Errorf("when it has stopped: %v", err)
	}
}
