package cluster

import (
	"reflect"
	"testing"
)

func TestParseUsage(t *testing.T) {
	got := parseUsage([]byte(`# HELP apiserver_storage_size_bytes Size of the storage database file physically allocated in bytes.
apiserver_storage_size_bytes{storage_cluster_id="etcd-0"} 2.0e+07
skiff_storage_in_use_bytes 1.5e+07
skiff_storage_quota_bytes 2.5165824e+07
skiff_storage_namespace_bytes{namespace="b",resource="configmaps"} 100
skiff_storage_namespace_bytes{namespace="a",resource="events"} 9000
skiff_storage_namespace_bytes{namespace="",resource="nodes"} 50
skiff_storage_namespace_bytes{namespace="c",resource="pods"} 7
apiserver_storage_objects{resource="pods"} 3
`))
	want := DatabaseUsage{Size: 20_000_000, InUse: 15_000_000, Quota: 25_165_824, Largest: []StorageShare{{"a", "events", 9000}, {"b", "configmaps", 100}, {"", "nodes", 50}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}
