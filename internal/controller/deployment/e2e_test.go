package deployment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"skiff/internal/controller/controllertest"
)

// A Deployment is created and rolled out with another image, as a client sees it.
func TestRollout(t *testing.T) {
	c := start(t)
	c.create(4)
	d := c.rolledOut(all)
	if d.Annotations["deployment.kubernetes.io/revision"] != "1" {
		t.Errorf("%v", d.Annotations)
	}
	name := c.sets()[0].Name
	if got, want := condition(d, appsv1.DeploymentProgressing), `True NewReplicaSetAvailable: ReplicaSet "`+name+`" has successfully progressed.`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := condition(d, appsv1.DeploymentAvailable); got != "True MinimumReplicasAvailable: Deployment has minimum availability." {
		t.Error(got)
	}
	if ptr.Deref(d.Status.TerminatingReplicas, -1) != 0 {
		t.Errorf("%+v", d.Status)
	}
	c.setImage("v2")
	c.eventually(map[string]int32{"v1": 3, "v2": 2}) // 25 % of 4 more, 25 % fewer available; the others wait
	d = c.rolledOut(all)
	c.eventually(map[string]int32{"v1": 0, "v2": 4})
	if d.Annotations["deployment.kubernetes.io/revision"] != "2" {
		t.Errorf("%v", d.Annotations)
	}
	for _, p := range c.pods() {
		if p.Spec.Containers[0].Image != "v2" {
			t.Errorf("%s has %s", p.Name, p.Spec.Containers[0].Image)
		}
	}
	controllertest.Eventually(t, func() string {
		events := c.events()
		for _, want := range []string{"Scaled up replica set " + name + " from 0 to 4", "Scaled down replica set " + name + " from 4 to 3"} {
			if !slices.Contains(events, "deployment-controller ScalingReplicaSet "+want) {
				return fmt.Sprintf("%q in %q", want, events)
			}
		}
		return ""
	})
}

// The names of ReplicaSets are upstream's: these were recorded from v1.37.1.
func TestNamesAreUpstreams(t *testing.T) {
	c := start(t)
	for name, template := range map[string]string{
		"nginx-69b9cdbbdd": `{containers: [{name: nginx, image: nginx, resources: {}}]}`,
		"multi-788fb9b74b": `{containers: [{name: a, image: a:1, resources: {}}, {name: b, image: b:2, resources: {}}]}`,
		"rich-8554bd7d5b": `
terminationGracePeriodSeconds: 5
nodeSelector: {disk: ssd}
tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 30}]
containers:
- name: c
  image: busybox:1.36
  command: [sleep, "3600"]
  env: [{name: A, value: "1"}, {name: B, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
  resources: {requests: {cpu: 100m, memory: 64Mi}, limits: {memory: 128Mi}}
  ports: [{containerPort: 8080}]
  readinessProbe: {httpGet: {path: /, port: 8080}}
  volumeMounts: [{name: v, mountPath: /v}]
volumes: [{name: v, emptyDir: {sizeLimit: 1Gi}}]`,
	} {
		app, _, _ := strings.Cut(name, "-")
		c.create(0, func(d *appsv1.Deployment) {
			d.Name = app
			d.Spec.Selector.MatchLabels = map[string]string{"app": app}
			d.Spec.Template.Labels = map[string]string{"app": app}
			if app == "rich" {
				d.Spec.Template.Labels["tier"] = "x"
				d.Spec.Template.Annotations = map[string]string{"note": "hello"}
			}
			d.Spec.Template.Spec = corev1.PodSpec{}
			if err := yaml.UnmarshalStrict([]byte(template), &d.Spec.Template.Spec); err != nil {
				t.Fatal(err)
			}
		})
		controllertest.Eventually(t, func() string {
			var names []string
			for _, rs := range c.sets() {
				names = append(names, rs.Name)
			}
			if !slices.Contains(names, name) {
				return fmt.Sprintf("%s in %v", name, names)
			}
			return ""
		})
	}
}

// The name of the new ReplicaSet is taken: it gets another.
func TestCollision(t *testing.T) {
	c := start(t)
	c.create(0)
	c.rolledOut(all)
	taken := c.sets()[0]
	if err := c.server.Client().AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// No garbage collector runs here: the ReplicaSet of the former Deployment stays.
	c.create(1)
	d := c.rolledOut(all)
	if ptr.Deref(d.Status.CollisionCount, 0) != 1 {
		t.Errorf("%+v", d.Status)
	}
	for _, rs := range c.sets() {
		if (rs.Name == taken.Name) == metav1.IsControlledBy(&rs, d) {
			t.Errorf("%s is of %v", rs.Name, rs.OwnerReferences)
		}
	}
}

// A broken image stops a rollout; the deadline passes; rolling back heals it.
func TestDeadlineAndUndo(t *testing.T) {
	c := start(t)
	c.create(4, func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To(int32(1)) })
	c.rolledOut(all)
	c.setImage("broken")
	controllertest.Eventually(t, func() string {
		got := condition(c.get(), appsv1.DeploymentProgressing)
		if !strings.HasPrefix(got, "False ProgressDeadlineExceeded: ReplicaSet \"web-") || !strings.HasSuffix(got, "\" has timed out progressing.") {
			return got
		}
		return ""
	})
	c.eventually(map[string]int32{"v1": 3, "broken": 2})
	c.setImage("v1")
	c.rolledOut(image("v1"))
	c.eventually(map[string]int32{"v1": 4, "broken": 0})
	for _, rs := range c.sets() {
		a := rs.Annotations
		if rs.Spec.Template.Spec.Containers[0].Image == "v1" && (a["deployment.kubernetes.io/revision"] != "3" || a["deployment.kubernetes.io/revision-history"] != "1") {
			t.Errorf("%v", a)
		}
	}
}

// Recreate: no new pod starts while an old one runs, even one that takes long to terminate.
func TestRecreate(t *testing.T) {
	c := start(t)
	c.create(2, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
	c.rolledOut(all)
	old := c.pods()
	for i := range old {
		controllertest.Bind(t, c.server, &old[i], "n1") // so that it ends gracefully
	}
	c.setImage("v2")
	controllertest.Eventually(t, func() string {
		if d := c.get(); ptr.Deref(d.Status.TerminatingReplicas, 0) != 2 || d.Status.Replicas != 0 {
			return fmt.Sprintf("%+v", d.Status)
		}
		return ""
	})
	end := func(p corev1.Pod) {
		if err := c.server.Client().CoreV1().Pods("default").Delete(t.Context(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}); err != nil {
			t.Fatal(err)
		}
	}
	end(old[0])
	controllertest.Eventually(t, func() string {
		if d := c.get(); ptr.Deref(d.Status.TerminatingReplicas, 0) != 1 {
			return fmt.Sprintf("%+v", d.Status)
		}
		return ""
	})
	if n := len(c.sets()); n != 1 {
		t.Fatalf("%d ReplicaSets while an old pod runs", n)
	}
	end(old[1])
	c.rolledOut(all)
	c.eventually(map[string]int32{"v1": 0, "v2": 2})
}

// Scaling in the middle of a rollout keeps the proportions.
func TestProportionalScaling(t *testing.T) {
	c := start(t)
	c.create(10, func(d *appsv1.Deployment) {
		d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(3)), MaxUnavailable: ptr.To(intstr.FromInt32(2))}
	})
	c.rolledOut(all)
	c.setImage("v2")
	c.eventually(map[string]int32{"v1": 8, "v2": 5})
	c.patch(`{"spec":{"replicas":30}}`)
	c.eventually(map[string]int32{"v1": 20, "v2": 13})
	c.rolledOut(all)
	c.eventually(map[string]int32{"v1": 0, "v2": 30})
}

// Old revisions beyond the limit are deleted when a rollout is complete.
func TestHistoryLimit(t *testing.T) {
	c := start(t)
	c.create(1, func(d *appsv1.Deployment) { d.Spec.RevisionHistoryLimit = ptr.To(int32(2)) })
	c.rolledOut(all)
	for i := 2; i <= 5; i++ {
		c.setImage(fmt.Sprint("v", i))
		c.rolledOut(all)
	}
	c.eventually(map[string]int32{"v3": 0, "v4": 0, "v5": 1})
}

// An existing ReplicaSet with the Deployment's labels and template is adopted, with its pods.
func TestAdoption(t *testing.T) {
	c := start(t)
	c.create(2)
	d := c.rolledOut(all)
	set, pods := c.sets()[0], c.pods()
	orphan := metav1.DeletePropagationOrphan
	if err := c.server.Client().AppsV1().Deployments("default").Delete(t.Context(), "web", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	// What the garbage collector would do.
	apps := c.server.Client().AppsV1()
	_, err := apps.ReplicaSets("default").Patch(t.Context(), set.Name, types.MergePatchType, []byte(`{"metadata":{"ownerReferences":null}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = apps.Deployments("default").Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	again := c.create(2)
	if again.UID == d.UID {
		t.Fatal("it is not another")
	}
	again = c.rolledOut(all)
	if sets := c.sets(); len(sets) != 1 || sets[0].UID != set.UID || !metav1.IsControlledBy(&sets[0], again) {
		t.Errorf("%+v", sets)
	}
	for _, p := range c.pods() {
		if !slices.ContainsFunc(pods, func(old corev1.Pod) bool { return old.UID == p.UID }) {
			t.Errorf("%s is new", p.Name)
		}
	}
}
