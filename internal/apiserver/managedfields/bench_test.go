package managedfields

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"skiff/internal/catalog"
)

const benchPod = `{"metadata":{"name":"web-5d4f8c7b9-abcde","generateName":"web-5d4f8c7b9-","namespace":"default",
"uid":"8a4a9f0e-5f0c-4a52-9d0e-0d6a3f5b1c11",
"labels":{"app":"web","pod-template-hash":"5d4f8c7b9"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web-5d4f8c7b9",
"uid":"6f1d2c3b-4a59-4877-9695-a4b3c2d1e0f9","controller":true,"blockOwnerDeletion":true}]},
"spec":{"containers":[{"name":"web","image":"nginx:1.27","command":["nginx","-g","daemon off;"],"ports":[{"containerPort":80,"protocol":"TCP"}],
"env":[{"name":"A","value":"1"},{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],
"resources":{"limits":{"cpu":"500m","memory":"128Mi"},"requests":{"cpu":"250m","memory":"64Mi"}},
"readinessProbe":{"httpGet":{"path":"/","port":80,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},
"volumeMounts":[{"name":"kube-api-access-x7x2v","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}]}],
"volumes":[{"name":"kube-api-access-x7x2v","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},
{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],
"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}]}}`

const benchPending = `{"status":{"phase":"Pending","qosClass":"Burstable","conditions":[
{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0/3 nodes are available",
"lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`

const benchStarting = `{"spec":{"nodeName":"node-1"},"status":{"phase":"Pending","hostIP":"10.0.0.4","hostIPs":[{"ip":"10.0.0.4"}],
"startTime":"2026-01-01T00:00:01Z","qosClass":"Burstable","conditions":[
{"type":"PodReadyToStartContainers","status":"False","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"},
{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"},
{"type":"Ready","status":"False","reason":"ContainersNotReady","message":"containers with unready status: [web]",
"lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"},
{"type":"ContainersReady","status":"False","reason":"ContainersNotReady","message":"containers with unready status: [web]",
"lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"},
{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"}],
"containerStatuses":[{"name":"web","state":{"waiting":{"reason":"ContainerCreating"}},"image":"nginx:1.27","started":false}]}}`

const benchRunning = `{"status":{"phase":"Running","podIP":"10.244.1.7","podIPs":[{"ip":"10.244.1.7"}],"conditions":[
{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:03Z"},
{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"},
{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:03Z"},
{"type":"ContainersReady","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:03Z"},
{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"}],
"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-01-01T00:00:02Z"}},
"ready":true,"started":true,"restartCount":0,"image":"docker.io/library/nginx:1.27",
"imageID":"docker.io/library/nginx@sha256:0f5e","containerID":"containerd://4c1b"}]}}`

const benchRestarted = `{"status":{"conditions":[
{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:03Z"},
{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"},
{"type":"Ready","status":"False","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:10:03Z"},
{"type":"ContainersReady","status":"False","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:10:03Z"},
{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-01-01T00:00:01Z"}],
"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-01-01T00:10:02Z"}},
"ready":false,"started":true,"restartCount":1,"image":"docker.io/library/nginx:1.27",
"imageID":"docker.io/library/nginx@sha256:0f5e","containerID":"containerd://4c1c"}]}}`

const benchLease = `{"metadata":{"name":"node-1","namespace":"kube-node-lease","uid":"1","ownerReferences":[{"apiVersion":"v1","kind":"Node",
"name":"node-1","uid":"6f1d2c3b-4a59-4877-9695-a4b3c2d1e0f9"}]},
"spec":{"holderIdentity":"node-1","leaseDurationSeconds":40,"renewTime":"2026-01-01T00:00:01.000001Z"}}`

const benchSlice = `{"metadata":{"name":"web-x","namespace":"default","uid":"1","generateName":"web-","labels":{"kubernetes.io/service-name":"web",
"endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"},
"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:00Z"},"ownerReferences":[{"apiVersion":"v1","kind":"Service",
"name":"web","uid":"a","controller":true,"blockOwnerDeletion":true}]},
"addressType":"IPv4","endpoints":[{"addresses":["10.244.1.7"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node-1",
"targetRef":{"kind":"Pod","namespace":"default","name":"a","uid":"b"}},
{"addresses":["10.244.2.7"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node-2","targetRef":{"kind":"Pod",
"namespace":"default","name":"c","uid":"d"}}],"ports":[{"name":"","port":80,"protocol":"TCP"}]}`

const benchSliceLater = `{"metadata":{"annotations":{"endpoints.kubernetes.io/last-change-trigger-time":"2026-01-01T00:00:09Z"}},
"endpoints":[{"addresses":["10.244.1.7"],"conditions":{"ready":false,"serving":true,"terminating":true},"nodeName":"node-1",
"targetRef":{"kind":"Pod","namespace":"default","name":"a","uid":"b"}}]}`

// write is one write of a history: its endpoint, its manager and a merge patch.
type write struct{ subresource, manager, merge string }

// BenchmarkUpdate measures the last write of each history: the frequent writes of a cluster to objects that the usual managers have written.
func BenchmarkUpdate(b *testing.B) {
	running := []write{{"", "kube-controller-manager", benchPod}, {"status", "kube-scheduler", benchPending}, {"status", "kubelet", benchStarting},
		{"status", "kubelet", benchRunning}}
	then := func(more ...write) []write { return append(slices.Clone(running), more...) }
	note := func(value string) write {
		return write{"", "kubectl", `{"metadata":{"annotations":{"example.com/note":"` + value + `"}}}`}
	}
	for _, bench := range []struct {
		name, kind string
		writes     []write
	}{
		{"pod is created", "Pod", running[:1]},
		{"pod starts", "Pod", running[:3]},
		{"pod runs", "Pod", running},
		{"pod status changes", "Pod", then(write{"status", "kubelet", benchRestarted})},
		{"pod status is the same", "Pod", then(write{"status", "kubelet", `{}`})},
		{"pod is the same", "Pod", then(write{"", "kubectl", `{}`})},
		{"pod is annotated", "Pod", then(note("1"))},
		{"pod annotation changes", "Pod", then(note("1"), note("2"))},
		{"lease is renewed", "Lease", []write{{"", "kubelet", benchLease}, {"", "kubelet", `{"spec":{"renewTime":"2026-01-01T00:00:11.000001Z"}}`}}},
		{"endpoints change", "EndpointSlice", []write{{"", "kube-controller-manager", benchSlice}, {"", "kube-controller-manager", benchSliceLater}}},
	} {
		live, obj, m, name := replayed(b, bench.kind, bench.writes)
		entries := obj.GetManagedFields()
		b.Run(bench.name+"/fast path", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				obj.SetManagedFields(entries)
				if !m.fastUpdate(live, obj, name) {
					b.Fatal("took the long way")
				}
			}
		})
		b.Run(bench.name+"/library", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				obj.SetManagedFields(entries)
				m.libraryUpdate(live, obj, name)
			}
		})
	}
}

// replayed does all writes but the last, and returns the arguments of the last.
func replayed(b *testing.B, kind string, writes []write) (live, obj catalog.Object, m *Manager, manager string) {
	info := kindOf(b, kind)
	live = info.New().(catalog.Object)
	for i, w := range writes {
		m, err := New(info, w.subresource, nil)
		if err != nil {
			b.Fatal(err)
		}
		obj, read := info.New().(catalog.Object), info.New().(catalog.Object)
		data, err := live.Marshal()
		if err == nil {
			err = obj.Unmarshal(data)
		}
		if err == nil {
			err = read.Unmarshal(data)
		}
		if err == nil {
			err = json.Unmarshal([]byte(w.merge), obj)
		}
		if err != nil {
			b.Fatal(err)
		}
		info.Default(obj)
		if i == len(writes)-1 {
			return read, obj, m, w.manager
		}
		m.libraryUpdate(read, obj, w.manager)
		for _, e := range obj.GetManagedFields() {
			e.Time.Time = time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
		}
		live = obj
	}
	panic("no writes")
}
