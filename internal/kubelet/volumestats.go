package kubelet

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/volume"
)

// volumeStatsTTL is how long what is used of the claims' volumes is not measured again, however often metrics are read.
const volumeStatsTTL = time.Minute

// volumeStats collects kubelet_volume_stats_*: what is used of each claim on the node.
type volumeStats struct {
	k *Kubelet

	mu         sync.Mutex
	measuredAt time.Time
	claims     map[claimName]volume.Usage
}

// claimName is the name of a PersistentVolumeClaim.
type claimName struct{ namespace, name string }

// volumeStatsDescs are the metrics, each with what it shows of a usage.
var volumeStatsDescs = []struct {
	desc  *prometheus.Desc
	value func(volume.Usage) uint64
}{
	{volumeStatsDesc("capacity_bytes", "Capacity in bytes of the volume"), func(u volume.Usage) uint64 { return u.Capacity }},
	{volumeStatsDesc("available_bytes", "Number of available bytes in the volume"), func(u volume.Usage) uint64 { return u.Available }},
	{volumeStatsDesc("used_bytes", "Number of used bytes in the volume"), func(u volume.Usage) uint64 { return u.Used }},
	{volumeStatsDesc("inodes", "Maximum number of inodes in the volume"), func(u volume.Usage) uint64 { return u.InodesLimit }},
	{volumeStatsDesc("inodes_free", "Number of free inodes in the volume"), func(u volume.Usage) uint64 { return u.InodesFree }},
	{volumeStatsDesc("inodes_used", "Number of used inodes in the volume"), func(u volume.Usage) uint64 { return u.InodesUsed }},
}

func volumeStatsDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("kubelet_volume_stats_"+name, "[ALPHA] "+help, []string{"namespace", "persistentvolumeclaim"}, nil)
}

// Describe implements prometheus.Collector.
func (v *volumeStats) Describe(to chan<- *prometheus.Desc) {
	for _, d := range volumeStatsDescs {
		to <- d.desc
	}
}

// Collect implements prometheus.Collector.
func (v *volumeStats) Collect(to chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.measuredAt) > volumeStatsTTL {
		v.claims, v.measuredAt = v.measure(), time.Now()
	}
	for claim, usage := range v.claims {
		for _, d := range volumeStatsDescs {
			to <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, float64(d.value(usage)), claim.namespace, claim.name)
		}
	}
}

// measure measures the volumes of all claims that pods on the node use.
func (v *volumeStats) measure() map[claimName]volume.Usage {
	ctx, cancel := context.WithTimeout(context.Background(), volumeStatsTTL)
	defer cancel()
	claims := map[claimName]volume.Usage{}
	pods, err := v.k.podLister.List(everything)
	if err != nil {
		return nil // listing from a cache does not fail
	}
	for _, pod := range pods {
		names := claimsOf(pod)
		if len(names) == 0 {
			continue
		}
		for _, usage := range v.k.claimUsage(ctx, pod.UID) {
			if name, ok := names[usage.Volume]; ok {
				claims[claimName{pod.Namespace, name}] = usage
			}
		}
	}
	return claims
}

// claimsOf returns the names of a pod's claims, by the names of its volumes.
func claimsOf(pod *corev1.Pod) map[string]string {
	names := map[string]string{}
	for i := range pod.Spec.Volumes {
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names[v.Name] = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			names[v.Name] = pod.Name + "-" + v.Name
		}
	}
	return names
}
