package quota_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"skiff/internal/quota"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// evaluators returns the evaluators of a cluster in which the class gpu offers example.com/gpu, the class fpga has no extendedResourceName,
// and the pod train requests two of example.com/gpu.
func evaluators(t *testing.T) *quota.Evaluators {
	t.Helper()
	classes := &quota.DeviceClasses{}
	classes.Changed(nil, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: ptr.To("example.com/gpu")}})
	classes.Changed(nil, &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "fpga"}})
	train := parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: train, uid: u1}, spec: {containers: [{name: c, resources: {requests: {example.com/gpu: 2}}}]}}`)
	return quota.New(quota.Cluster{Now: func() time.Time { return now }, Classes: classes,
		Pod: func(namespace, name string) *corev1.Pod {
			if namespace == "ns" && name == "train" {
				return train
			}
			return nil
		},
		Claims: func(string) []*resourcev1.ResourceClaim {
			return []*resourcev1.ResourceClaim{parse(t, &resourcev1.ResourceClaim{}, forTrain("first", "u1"))}
		}})
}

func forTrain(name, uid string) string {
	return fmt.Sprintf(`{metadata: {namespace: ns, name: %s, annotations: {resource.kubernetes.io/extended-resource-claim: "true"},
	  ownerReferences: [{apiVersion: v1, kind: Pod, name: train, uid: %s, controller: true}]},
	  spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 3}}]}}}`, name, uid)
}

func parse[O any](t *testing.T, obj O, text string) O {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), obj); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return obj
}

func print(list corev1.ResourceList) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		value := list[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, value.String()))
	}
	return strings.Join(parts, " ")
}

func TestUsage(t *testing.T) {
	all := evaluators(t)
	for _, c := range []struct {
		name     string
		resource schema.GroupResource
		obj      quota.Object
		text     string
		want     string
	}{
		{"a pod that requests nothing", corev1.Resource("pods"), &corev1.Pod{}, `{spec: {containers: [{name: c}]}}`, "count/pods=1 pods=1"},
		{"requests and limits of all kinds", corev1.Resource("pods"), &corev1.Pod{}, `{spec: {containers: [{name: c, resources: {
			requests: {cpu: 100m, memory: 1Gi, ephemeral-storage: 2Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1},
			limits: {cpu: 200m, memory: 2Gi, ephemeral-storage: 3Gi, hugepages-2Mi: 4Mi, example.com/gpu: 1}}}]}}`,
			"count/pods=1 cpu=100m ephemeral-storage=2Gi hugepages-2Mi=4Mi limits.cpu=200m limits.ephemeral-storage=3Gi limits.memory=2Gi memory=1Gi pods=1 " +
				"requests.cpu=100m requests.ephemeral-storage=2Gi requests.example.com/gpu=1 requests.hugepages-2Mi=4Mi requests.memory=1Gi"},
		{"the largest of init containers or the sum of the others, sidecars added to both", corev1.Resource("pods"), &corev1.Pod{}, `{spec: {
			containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Mi}}}, {name: b, resources: {requests: {cpu: 1}}}],
			initContainers: [{name: side, restartPolicy: Always, resources: {requests: {cpu: 500m}}}, {name: i, resources: {requests: {cpu: 3}}}],
			overhead: {cpu: 10m}}}`,
			"count/pods=1 cpu=3510m memory=1Mi pods=1 requests.cpu=3510m requests.memory=1Mi"},
		{"the pod's own resources count before its containers'", corev1.Resource("pods"), &corev1.Pod{}, `{spec: {resources: {requests: {cpu: 5}, limits: {cpu: 6}},
			containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Mi}}}]}}`,
			"count/pods=1 cpu=5 limits.cpu=6 memory=1Mi pods=1 requests.cpu=5 requests.memory=1Mi"},
		{"a pod being resized counts with the larger size", corev1.Resource("pods"), &corev1.Pod{}, `{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]},
			status: {containerStatuses: [{name: a, image: i, imageID: i, ready: true, restartCount: 0, allocatedResources: {cpu: 2}, resources: {requests: {cpu: 2}}}]}}`,
			"count/pods=1 cpu=2 pods=1 requests.cpu=2"},
		{"a pod that has ended", corev1.Resource("pods"), &corev1.Pod{}, `{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}, status: {phase: Succeeded}}`, "count/pods=1"},
		{"a pod that should have ended", corev1.Resource("pods"), &corev1.Pod{}, `{metadata: {deletionTimestamp: "2026-09-01T11:59:00Z", deletionGracePeriodSeconds: 30}}`, "count/pods=1"},
		{"a pod that is ending", corev1.Resource("pods"), &corev1.Pod{}, `{metadata: {deletionTimestamp: "2026-09-01T11:59:45Z", deletionGracePeriodSeconds: 30}}`, "count/pods=1 pods=1"},
		{"a device class by its implicit name", corev1.Resource("pods"), &corev1.Pod{},
			`{spec: {containers: [{name: c, resources: {requests: {deviceclass.resource.kubernetes.io/fpga: 1}}}]}}`,
			"count/pods=1 pods=1 requests.deviceclass.resource.kubernetes.io/fpga=1"},

		{"a cluster-internal service", corev1.Resource("services"), &corev1.Service{}, `{spec: {type: ClusterIP, ports: [{port: 80}]}}`,
			"count/services=1 services=1 services.loadbalancers=0 services.nodeports=0"},
		{"a service on node ports", corev1.Resource("services"), &corev1.Service{}, `{spec: {type: NodePort, ports: [{port: 80}, {port: 81}]}}`,
			"count/services=1 services=1 services.loadbalancers=0 services.nodeports=2"},
		{"a load balancer", corev1.Resource("services"), &corev1.Service{}, `{spec: {type: LoadBalancer, ports: [{port: 80}, {port: 81}]}}`,
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=2"},
		{"a load balancer with only the node ports it names", corev1.Resource("services"), &corev1.Service{},
			`{spec: {type: LoadBalancer, allocateLoadBalancerNodePorts: false, ports: [{port: 80}, {port: 81, nodePort: 30000}]}}`,
			"count/services=1 services=1 services.loadbalancers=1 services.nodeports=1"},

		{"a claim without a class", corev1.Resource("persistentvolumeclaims"), &corev1.PersistentVolumeClaim{}, `{spec: {resources: {requests: {storage: 1Gi}}}}`,
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=1Gi"},
		{"a claim counts for its class, in whole bytes", corev1.Resource("persistentvolumeclaims"), &corev1.PersistentVolumeClaim{},
			`{spec: {storageClassName: gold, resources: {requests: {storage: 1100m}}}}`,
			"count/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/persistentvolumeclaims=1 gold.storageclass.storage.k8s.io/requests.storage=2 persistentvolumeclaims=1 requests.storage=2"},
		{"the annotation names the class before the field does", corev1.Resource("persistentvolumeclaims"), &corev1.PersistentVolumeClaim{},
			`{metadata: {annotations: {volume.beta.kubernetes.io/storage-class: old}}, spec: {storageClassName: gold}}`,
			"count/persistentvolumeclaims=1 old.storageclass.storage.k8s.io/persistentvolumeclaims=1 persistentvolumeclaims=1"},
		{"a claim that asks for less keeps what it was given", corev1.Resource("persistentvolumeclaims"), &corev1.PersistentVolumeClaim{},
			`{spec: {resources: {requests: {storage: 1Gi}}}, status: {allocatedResources: {storage: 3Gi}}}`,
			"count/persistentvolumeclaims=1 persistentvolumeclaims=1 requests.storage=3Gi"},

		{"devices by class, the most of alternatives", resourcev1.Resource("resourceclaims"), &resourcev1.ResourceClaim{}, `{spec: {devices: {requests: [
			{name: a, exactly: {deviceClassName: fpga, allocationMode: ExactCount, count: 2}}, {name: b, exactly: {deviceClassName: other, allocationMode: All}},
			{name: c, firstAvailable: [{name: x, deviceClassName: fpga, allocationMode: ExactCount, count: 1}, {name: y, deviceClassName: fpga, allocationMode: ExactCount, count: 3}]}]}}}`,
			"count/resourceclaims.resource.k8s.io=1 fpga.deviceclass.resource.k8s.io/devices=5 other.deviceclass.resource.k8s.io/devices=32 " +
				"requests.deviceclass.resource.kubernetes.io/fpga=5 requests.deviceclass.resource.kubernetes.io/other=32"},
		{"devices also count as the extended resource of their class", resourcev1.Resource("resourceclaims"), &resourcev1.ResourceClaim{},
			`{spec: {devices: {requests: [{name: a, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 1}}]}}}`,
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=1 requests.deviceclass.resource.kubernetes.io/gpu=1 requests.example.com/gpu=1"},
		{"but not those that the pod of the claim is charged with", resourcev1.Resource("resourceclaims"), &resourcev1.ResourceClaim{}, forTrain("first", "u1"),
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=1"},
		{"if the pod has no earlier claim", resourcev1.Resource("resourceclaims"), &resourcev1.ResourceClaim{}, forTrain("second", "u1"),
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=3"},
		{"and is the same pod", resourcev1.Resource("resourceclaims"), &resourcev1.ResourceClaim{}, forTrain("first", "u2"),
			"count/resourceclaims.resource.k8s.io=1 gpu.deviceclass.resource.k8s.io/devices=3 requests.deviceclass.resource.kubernetes.io/gpu=3 requests.example.com/gpu=3"},

		{"a secret", corev1.Resource("secrets"), &corev1.Secret{}, `{}`, "count/secrets=1 secrets=1"},
		{"anything else", schema.GroupResource{Group: "example.com", Resource: "widgets"}, &corev1.Secret{}, `{}`, "count/widgets.example.com=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := print(all.For(c.resource).Usage(parse(t, c.obj, c.text))); got != c.want {
				t.Errorf("uses %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	all := evaluators(t)
	for _, c := range []struct {
		name corev1.ResourceName
		want string
	}{
		{"pods", "pods"}, {"count/pods", "pods"}, {"limits.memory", "pods"}, {"hugepages-1Gi", "pods"}, {"requests.hugepages-1Gi", "pods"},
		{"requests.example.com/gpu", "pods resourceclaims.resource.k8s.io"}, {"requests.example.com/other", "pods"}, {"example.com/gpu", ""},
		{"requests.deviceclass.resource.kubernetes.io/fpga", "pods resourceclaims.resource.k8s.io"}, {"requests.deviceclass.resource.kubernetes.io/none", "pods"},
		{"gpu.deviceclass.resource.k8s.io/devices", "resourceclaims.resource.k8s.io"}, {"limits.example.com/gpu", ""},
		{"services.nodeports", "services"}, {"requests.storage", "persistentvolumeclaims"}, {"gold.storageclass.storage.k8s.io/requests.storage", "persistentvolumeclaims"},
		{"gold.storageclass.storage.k8s.io/limits.storage", ""}, {"configmaps", "configmaps"}, {"count/configmaps", "configmaps"}, {"count/deployments.apps", "deployments.apps"},
		{"deployments", ""}, {"count/deployments", ""},
	} {
		var counted []string
		for _, r := range []schema.GroupResource{corev1.Resource("pods"), corev1.Resource("services"), corev1.Resource("persistentvolumeclaims"),
			resourcev1.Resource("resourceclaims"), corev1.Resource("configmaps"), {Group: "apps", Resource: "deployments"}} {
			if all.For(r).Counts(c.name) {
				counted = append(counted, r.String())
			}
		}
		if got := strings.Join(counted, " "); got != c.want {
			t.Errorf("%s limits %q, want %q", c.name, got, c.want)
		}
	}
}

func TestConstraints(t *testing.T) {
	pods := evaluators(t).For(corev1.Resource("pods"))
	for _, c := range []struct{ name, limited, pod, want string }{
		{"all said", "limits.cpu requests.memory memory cpu", `{spec: {containers: [{name: c, resources: {requests: {cpu: 1, memory: 1}, limits: {cpu: 1}}}]}}`, ""},
		{"nothing said", "limits.cpu limits.memory pods ephemeral-storage", `{spec: {containers: [{name: b}, {name: a}], initContainers: [{name: i}]}}`,
			"must specify limits.cpu for: a,b,i; limits.memory for: a,b,i"},
		{"one container says nothing", "requests.cpu", `{spec: {containers: [{name: a, resources: {requests: {cpu: 0}}}, {name: b, resources: {limits: {cpu: 1}}}]}}`,
			"must specify requests.cpu for: b"},
		{"the pod speaks for all", "limits.cpu", `{spec: {resources: {requests: {cpu: 1}}, containers: [{name: a}]}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var limited []corev1.ResourceName
			for _, name := range strings.Fields(c.limited) {
				limited = append(limited, corev1.ResourceName(name))
			}
			got := ""
			if err := pods.Constraints(limited, parse(t, &corev1.Pod{}, c.pod)); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestScopes(t *testing.T) {
	all := evaluators(t)
	pods, claims, services := corev1.Resource("pods"), corev1.Resource("persistentvolumeclaims"), corev1.Resource("services")
	for _, c := range []struct {
		name     string
		resource schema.GroupResource
		spec     string
		in, out  string
	}{
		{"no scopes take all", services, `{}`, `{}`, ""},
		{"services are in no scope", services, `{scopes: [NotTerminating]}`, "", `{}`},
		{"terminating", pods, `{scopes: [Terminating]}`, `{spec: {activeDeadlineSeconds: 0}}`, `{}`},
		{"not terminating", pods, `{scopes: [NotTerminating]}`, `{}`, `{spec: {activeDeadlineSeconds: 5}}`},
		{"best effort", pods, `{scopes: [BestEffort]}`, `{spec: {containers: [{name: c, resources: {requests: {example.com/x: 1}}}]}}`, `{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`},
		{"not best effort", pods, `{scopes: [NotBestEffort]}`, `{spec: {containers: [{name: c, resources: {limits: {memory: 1}}}]}}`, `{spec: {containers: [{name: c}]}}`},
		{"what the status says of the class counts", pods, `{scopes: [NotBestEffort]}`, `{spec: {containers: [{name: c}]}, status: {qosClass: Burstable}}`, `{status: {qosClass: BestEffort}}`},
		{"all scopes must hold", pods, `{scopes: [BestEffort, Terminating]}`, `{spec: {activeDeadlineSeconds: 5}}`, `{}`},
		{"a priority class at all", pods, `{scopes: [PriorityClass]}`, `{spec: {priorityClassName: high}}`, `{}`},
		{"one of these", pods, `{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high, higher]}]}}`, `{spec: {priorityClassName: high}}`, `{spec: {priorityClassName: low}}`},
		{"none of these", pods, `{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: NotIn, values: [high]}]}}`, `{}`, `{spec: {priorityClassName: high}}`},
		{"no priority class", pods, `{scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: DoesNotExist}]}}`, `{}`, `{spec: {priorityClassName: high}}`},
		{"affinity to other namespaces", pods, `{scopes: [CrossNamespacePodAffinity]}`,
			`{spec: {affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: k, namespaceSelector: {}}}]}}}}`,
			`{spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: k}]}}}}`},
		{"affinity to named namespaces", pods, `{scopes: [CrossNamespacePodAffinity]}`,
			`{spec: {affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: k, namespaces: [a]}]}}}}`, `{spec: {affinity: {}}}`},
		{"a volume attributes class, wanted or had", claims, `{scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: In, values: [fast]}]}}`,
			`{spec: {volumeAttributesClassName: slow}, status: {currentVolumeAttributesClassName: fast}}`, `{spec: {volumeAttributesClassName: slow}}`},
		{"a volume attributes class on the way", claims, `{scopeSelector: {matchExpressions: [{scopeName: VolumeAttributesClass, operator: Exists}]}}`,
			`{status: {modifyVolumeStatus: {targetVolumeAttributesClassName: fast, status: Pending}}}`, `{}`},
		{"claims are in no scope of pods", claims, `{scopes: [NotTerminating]}`, "", `{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := parse(t, &corev1.ResourceQuotaSpec{}, c.spec)
			for text, want := range map[string]bool{c.in: true, c.out: false} {
				if text == "" {
					continue
				}
				var obj quota.Object = &corev1.Pod{}
				if c.resource == claims {
					obj = &corev1.PersistentVolumeClaim{}
				}
				if got, err := quota.InScopes(all.For(c.resource), spec, parse(t, obj, text)); err != nil || got != want {
					t.Errorf("in scope: %v, %v of %s", got, err, text)
				}
			}
		})
	}
	bad := &corev1.ResourceQuotaSpec{ScopeSelector: &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
		{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: "Near"}}}}
	if _, err := quota.InScopes(all.For(pods), bad, &corev1.Pod{}); err == nil {
		t.Error("an operator that does not exist is no error")
	}
}

func TestChargesAndFrees(t *testing.T) {
	all := evaluators(t)
	pod := func(text string) *corev1.Pod { return parse(t, &corev1.Pod{}, text) }
	pods, claims := all.For(corev1.Resource("pods")), all.For(corev1.Resource("persistentvolumeclaims"))
	plain, deadline := pod(`{}`), pod(`{spec: {activeDeadlineSeconds: 1}}`)
	for _, c := range []struct {
		name      string
		evaluator quota.Evaluator
		write     quota.Write
		want      bool
	}{
		{"new pod", pods, quota.Write{Create: true, Object: plain}, true},
		{"binding", pods, quota.Write{Create: true, Subresource: "binding", Object: plain}, false},
		{"pod update", pods, quota.Write{Object: plain, Old: plain}, false},
		{"pod gets a deadline", pods, quota.Write{Object: deadline, Old: plain}, true},
		{"resize", pods, quota.Write{Subresource: "resize", Object: plain, Old: plain}, true},
		{"pod status", pods, quota.Write{Subresource: "status", Object: plain, Old: plain}, false},
		{"claim status", claims, quota.Write{Subresource: "status", Object: &corev1.PersistentVolumeClaim{}, Old: &corev1.PersistentVolumeClaim{}}, true},
		{"service update", all.For(corev1.Resource("services")), quota.Write{Object: &corev1.Service{}, Old: &corev1.Service{}}, true},
		{"config map update", all.For(corev1.Resource("configmaps")), quota.Write{Object: &corev1.ConfigMap{}, Old: &corev1.ConfigMap{}}, false},
		{"scale", all.For(schema.GroupResource{Group: "apps", Resource: "deployments"}), quota.Write{Create: true, Subresource: "scale"}, false},
	} {
		if got := c.evaluator.Charges(c.write); got != c.want {
			t.Errorf("%s is charged: %v", c.name, got)
		}
	}
	ended := pod(`{status: {phase: Failed}}`)
	sized := func(cpu string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
			Resources: &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	}
	for _, c := range []struct {
		name      string
		evaluator quota.Evaluator
		new, old  quota.Object
		want      bool
	}{
		{"a pod that ended", pods, ended, plain, true}, {"one that had", pods, ended, ended, false}, {"a deadline", pods, deadline, plain, true},
		{"a resize", pods, sized("1"), sized("2"), true}, {"the same size", pods, sized("1000m"), sized("1"), false},
		{"a service type", all.For(corev1.Resource("services")), &corev1.Service{}, &corev1.Service{Spec: corev1.ServiceSpec{Type: "NodePort"}}, true},
		{"no service type", all.For(corev1.Resource("services")), &corev1.Service{}, &corev1.Service{Spec: corev1.ServiceSpec{Type: "ClusterIP"}}, false},
		{"an allocation", claims, &corev1.PersistentVolumeClaim{}, parse(t, &corev1.PersistentVolumeClaim{}, `{status: {allocatedResources: {storage: 1}}}`), true},
		{"a class", claims, &corev1.PersistentVolumeClaim{}, parse(t, &corev1.PersistentVolumeClaim{}, `{spec: {volumeAttributesClassName: a}}`), true},
	} {
		if got := c.evaluator.Frees(c.new, c.old); got != c.want {
			t.Errorf("%s frees: %v", c.name, got)
		}
	}
}

func TestUsed(t *testing.T) {
	q := parse(t, &corev1.ResourceQuota{}, `{spec: {hard: {pods: 10, requests.cpu: 4, services: 3, count/widgets.example.com: 5, count/unknown.example.com: 1}, scopes: []}}`)
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	broken := fmt.Errorf("broken")
	list := func(r schema.GroupResource) ([]quota.Object, error) {
		switch r {
		case corev1.Resource("pods"):
			return []quota.Object{parse(t, &corev1.Pod{}, `{spec: {containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}}`),
				parse(t, &corev1.Pod{}, `{spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`), parse(t, &corev1.Pod{}, `{status: {phase: Failed}}`)}, nil
		case corev1.Resource("services"):
			return nil, broken
		case widgets:
			return nil, nil
		}
		t.Errorf("%s was listed", r)
		return nil, nil
	}
	used, err := evaluators(t).Used(q, []schema.GroupResource{corev1.Resource("pods"), corev1.Resource("services"), corev1.Resource("secrets"), widgets}, list)
	if got := print(used); got != "count/widgets.example.com=0 pods=2 requests.cpu=2500m" || err == nil || !strings.Contains(err.Error(), "broken") {
		t.Errorf("used %s, %v", got, err)
	}
}

func TestDeviceClasses(t *testing.T) {
	d := &quota.DeviceClasses{}
	class := func(name string, extended *string) *resourcev1.DeviceClass {
		return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: extended}}
	}
	expect := func(resource corev1.ResourceName, offered bool, class, extended string) {
		t.Helper()
		if d.Offer(resource) != offered || d.ExtendedResource(class) != extended {
			t.Errorf("%s offered: %v; %s offers %q", resource, d.Offer(resource), class, d.ExtendedResource(class))
		}
	}
	expect("example.com/gpu", false, "a", "")
	a, b := class("a", ptr.To("example.com/gpu")), class("b", ptr.To("example.com/gpu"))
	d.Changed(nil, a)
	d.Changed(nil, b)
	d.Changed(a, class("a", nil))
	expect("example.com/gpu", true, "a", "")
	expect("deviceclass.resource.kubernetes.io/a", true, "b", "example.com/gpu")
	d.Changed(b, nil)
	expect("example.com/gpu", false, "b", "")
	expect("deviceclass.resource.kubernetes.io/b", false, "", "")
}
