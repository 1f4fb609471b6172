package apiserver_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/apiserver"
	"skiff/internal/store/etcd"
)

// TestStorageFull has one user flood a small database, first with events, then with config maps. The namespace is warned and seen in
// the metrics; node leases, heartbeats of nodes and deletes go on.
func TestStorageFull(t *testing.T) {
	t.Parallel()
	const quota = 24 << 20
	db, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: t.TempDir(), QuotaBytes: quota})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *apiserver.Options) {
		o.Store, o.UsageEvery = db, 50*time.Millisecond
		o.StoreUsage = func(ctx context.Context) (apiserver.StoreUsage, error) {
			size, inUse, err := db.Size(ctx)
			return apiserver.StoreUsage{Size: size, InUse: inUse, Quota: db.Quota()}, err
		}
	})
	for _, name := range []string{"flood", "kube-node-lease", "other"} {
		if a := s.send("POST", "/api/v1/namespaces", object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}}); a.Code != http.StatusCreated && a.Code != http.StatusConflict {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
	}
	s.send("POST", "/api/v1/nodes", object{"apiVersion": "v1", "kind": "Node", "metadata": object{"name": "n1"}}).ok()
	big := strings.Repeat("x", 100_000)
	flood := func(path string, body func(name string) object) (written int, last answer) {
		for ; written < 1000; written++ {
			if last = s.send("POST", path, body(fmt.Sprint("o", written))); last.Code != http.StatusCreated {
				return written, last
			}
		}
		t.Fatalf("1000 objects were written to %s", path)
		return 0, last
	}
	events, last := flood("/api/v1/namespaces/flood/events", func(name string) object {
		return object{"apiVersion": "v1", "kind": "Event", "metadata": object{"name": name}, "involvedObject": object{"namespace": "flood", "kind": "Pod", "name": "p"},
			"reason": "Flood", "message": "m", "related": object{"fieldPath": big}}
	})
	if last.Code != http.StatusInsufficientStorage {
		t.Fatalf("the event after %d: %d %.200s", events, last.Code, last.Body)
	}
	maps, last := flood("/api/v1/namespaces/flood/configmaps", func(name string) object {
		return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name, "finalizers": []string{"example.com/hold"}}, "data": object{"k": big}}
	})
	if last.Code != http.StatusInsufficientStorage || maps < 5 {
		t.Fatalf("%d config maps were written after the events, then: %d %.200s", maps, last.Code, last.Body)
	}

	// Everybody else's leases, heartbeats and deletes.
	lease := object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": "n1"}, "spec": object{"holderIdentity": "n1"}}
	s.send("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", lease).ok()
	for i := range 50 {
		s.send("PATCH", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1", object{"spec": object{"holderIdentity": fmt.Sprint("n", i)}},
			"Content-Type", "application/merge-patch+json").ok()
	}
	s.send("PATCH", "/api/v1/nodes/n1/status", object{"status": object{"conditions": []object{{"type": "Ready", "status": "True"}}}}, "Content-Type", "application/merge-patch+json").ok()
	s.send("DELETE", "/api/v1/namespaces/flood/configmaps/o0", nil).ok()
	s.send("PATCH", "/api/v1/namespaces/flood/configmaps/o0", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json").ok()
	s.send("GET", "/api/v1/namespaces/flood/configmaps/o0", nil).refused(http.StatusNotFound, "NotFound")

	// The namespace is seen.
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		warned := 0
		for _, event := range into[corev1.EventList](s.send("GET", "/api/v1/namespaces/flood/events?fieldSelector=reason%3DStorageAlmostFull", nil)).Items {
			if event.Type == "Warning" && strings.Contains(event.Message, "events take") || strings.Contains(event.Message, "configmaps take") {
				warned++
			}
		}
		metrics := string(s.send("GET", "/metrics", nil).Body)
		shown := strings.Contains(metrics, `skiff_storage_namespace_bytes{namespace="flood",resource="events"}`) && strings.Contains(metrics, "skiff_storage_quota_bytes 2.5165824e+07") &&
			strings.Contains(metrics, `apiserver_storage_size_bytes{storage_cluster_id="etcd-0"}`)
		if warned >= 2 && shown {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d warnings; metrics: %v\n%s", warned, shown, grepLines(metrics, "storage_"))
		}
	}
	if others := into[corev1.EventList](s.send("GET", "/api/v1/namespaces/other/events", nil)).Items; len(others) > 0 {
		t.Errorf("a namespace that holds nothing was warned: %v", others)
	}
}

func grepLines(text, word string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}
