package metrics

import "github.com/prometheus/client_golang/prometheus"

// Storage has the metrics about how full the database of the store is.
type Storage struct {
	Size, InUse, Quota prometheus.Gauge
	Share              *prometheus.GaugeVec
}

func newStorage(r *prometheus.Registry) Storage {
	m := Storage{
		Size: prometheus.NewGauge(prometheus.GaugeOpts{Name: "apiserver_storage_size_bytes",
			Help: "Size of the storage database file physically allocated in bytes.", ConstLabels: prometheus.Labels{"storage_cluster_id": "etcd-0"}}),
		InUse: prometheus.NewGauge(prometheus.GaugeOpts{Name: "skiff_storage_in_use_bytes", Help: "Bytes of the storage database that hold data."}),
		Quota: prometheus.NewGauge(prometheus.GaugeOpts{Name: "skiff_storage_quota_bytes", Help: "Bytes that the storage database may hold; 0 if unknown."}),
		Share: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "skiff_storage_namespace_bytes",
			Help: "Bytes of stored objects of the namespaces and resources with the most, counted while the database is at least half full."}, []string{"namespace", "resource"}),
	}
	r.MustRegister(m.Size, m.InUse, m.Quota, m.Share)
	return m
}
