package transcode

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// runningPod returns a running pod of a Deployment.
func runningPod() *corev1.Pod {
	then := metav1.NewTime(time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC))
	yes, no, seconds := true, false, int64(300)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-7d4b8c9f6d-x2x7q", GenerateName: "web-7d4b8c9f6d-", Namespace: "shop", UID: types.UID("0b6f3a6e-7a35-4f0b-9d8a-6a9d3c1b2e4f"),
			CreationTimestamp: then, Generation: 1,
			Labels:      map[string]string{"app": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d4b8c9f6d"},
			Annotations: map[string]string{"prometheus.io/port": "9090", "prometheus.io/scrape": "true"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-7d4b8c9f6d",
				UID: "5d2c0f7e-2f0f-4d55-8f0e-8e6f0b0f4c11", Controller: &yes, BlockOwnerDeletion: &yes}},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &then, FieldsType: "FieldsV1",
					FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{` +
						`"f:annotations":{".":{},"f:prometheus.io/port":{},"f:prometheus.io/scrape":{}},"f:generateName":{},"f:labels":{` +
						`".":{},"f:app":{},"f:app.kubernetes.io/part-of":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{},"k:{` +
						`\"uid\":\"5d2c0f7e-2f0f-4d55-8f0e-8e6f0b0f4c11\"}":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},` +
						`"k:{\"name\":\"MODE\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:livenessProbe":{".":{},` +
						`"f:failureThreshold":{},"f:httpGet":{".":{},"f:path":{},"f:port":{},"f:scheme":{}},"f:periodSeconds":{},"f:successThreshold":{},` +
						`"f:timeoutSeconds":{}},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},` +
						`"f:name":{},"f:protocol":{}}},"f:resources":{".":{},"f:limits":{".":{},"f:memory":{}},"f:requests":{".":{},"f:cpu":{},"f:memory":{` +
						`}}}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},` +
						`"f:terminationGracePeriodSeconds":{}}}`)},
				{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &then, FieldsType: "FieldsV1", Subresource: "status",
					FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:conditions":{"k:{\"type\":\"ContainersReady\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},` +
						`"f:status":{},"f:type":{}},"k:{\"type\":\"Initialized\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},` +
						`"f:type":{}},"k:{\"type\":\"Ready\"}":{".":{},"f:lastProbeTime":{},"f:lastTransitionTime":{},"f:status":{},"f:type":{}}},` +
						`"f:containerStatuses":{},"f:hostIP":{},"f:hostIPs":{},"f:phase":{},"f:podIP":{},"f:podIPs":{".":{},"k:{\"ip\":\"10.244.1.17\"}":{` +
						`".":{},"f:ip":{}}},"f:startTime":{}}}`)},
			},
		},
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{Name: "kube-api-access-5x2vl", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
					{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
						Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}}}}}}},
			RestartPolicy: corev1.RestartPolicyAlways, TerminationGracePeriodSeconds: &seconds, DNSPolicy: corev1.DNSClusterFirst, ServiceAccountName: "default",
			DeprecatedServiceAccount: "default", NodeName: "node-1", SecurityContext: &corev1.PodSecurityContext{}, SchedulerName: "default-scheduler",
			EnableServiceLinks: &yes,
			Tolerations: []corev1.Toleration{
				{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: "NoExecute", TolerationSeconds: &seconds},
				{Key: "node.kubernetes.io/unreachable", Operator: corev1.TolerationOpExists, Effect: "NoExecute", TolerationSeconds: &seconds},
			},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, HostIP: "192.168.1.10", HostIPs: []corev1.HostIP{{IP: "192.168.1.10"}},
			PodIP: "10.244.1.17", PodIPs: []corev1.PodIP{{IP: "10.244.1.17"}}, StartTime: &then, QOSClass: corev1.PodQOSBurstable},
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: then})
	}
	for _, name := range []string{"web", "metrics"} {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Image: "registry.example/shop/" + name + ":1.27.3", ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"--listen=:80", "--log=json"},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80, Protocol: corev1.ProtocolTCP}},
			Env: []corev1.EnvVar{{Name: "MODE", Value: "production"},
				{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"memory": resource.MustParse("128Mi")},
				Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}},
			VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-5x2vl", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
			LivenessProbe: &corev1.Probe{
				ProbeHandler:   corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromString("http"), Scheme: "HTTP"}},
				TimeoutSeconds: 1, PeriodSeconds: 10, SuccessThreshold: 1, FailureThreshold: 3},
			TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, RunAsNonRoot: &yes},
		})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: then}}, Ready: true, Started: &yes,
			Image:       "registry.example/shop/" + name + ":1.27.3",
			ImageID:     "registry.example/shop/" + name + "@sha256:3c4f1d0e8d7e8bb0b5ed3a1bcbf2b4d4f6f3dc94be3b1e5a2f6c1d0e9f8a7b6c",
			ContainerID: "containerd://9f8a7b6c3c4f1d0e8d7e8bb0b5ed3a1bcbf2b4d4f6f3dc94be3b1e5a2f6c1d0e",
		})
	}
	return pod
}

// storedPod returns the plan and the cached message of runningPod.
func storedPod(t testing.TB) (*Plan, []byte) {
	message, err := runningPod().Marshal()
	if err != nil {
		t.Fatal(err)
	}
	plan, err := Compile(reflect.TypeFor[corev1.Pod]())
	if err != nil {
		t.Fatal(err)
	}
	return plan, slices.Concat(message, appendBytes(nil, 1, appendBytes(nil, 6, []byte("4711"))))
}

// TestNoGarbage checks that only the growth of b is allocated, and that a writer is unchanged after use.
func TestNoGarbage(t *testing.T) {
	plan, message := storedPod(t)
	check(t, plan.goType, message)
	var w writer // not from the pool, which the race detector empties at random
	b := make([]byte, 0, 1<<16)
	write := func() {
		if _, err := w.message(b, plan, message); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, write); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if len(w.slots)+len(w.entries)+len(w.merged)+w.depth != 0 {
		t.Errorf("left behind: %d slots, %d entries, %d bytes, depth %d", len(w.slots), len(w.entries), len(w.merged), w.depth)
	}
}

func BenchmarkPod(b *testing.B) {
	plan, message := storedPod(b)
	out, err := plan.AppendJSON(nil, message)
	if err != nil {
		b.Fatal(err)
	}
	size := fmt.Sprintf("%dto%d", len(message), len(out))
	b.Run("transcode/"+size, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if out, err = plan.AppendJSON(out[:0], message); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("object/"+size, func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var pod corev1.Pod
			if err := pod.Unmarshal(message); err != nil {
				b.Fatal(err)
			}
			if _, err := json.Marshal(&pod); err != nil {
				b.Fatal(err)
			}
		}
	})
}
