package garbagecollector_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/garbagecollector"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ref returns an owner reference, as controllers set it.
func ref(version, kind string, owner metav1.Object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true)}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// deployment creates a Deployment with two ReplicaSets of three pods each, as its controllers would. Its pods are bound to a node, so that they terminate
// when the kubelet says so, unless instant.
func deployment(t testing.TB, server *apitest.Server, name string, instant bool) *appsv1.Deployment {
	t.Helper()
	c, ctx := server.Client(), t.Context()
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	d, err := c.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template()}}, metav1.CreateOptions{})
	check(t, err)
	for i := range 2 {
		meta := metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), OwnerReferences: []metav1.OwnerReference{ref("apps/v1", "Deployment", d)}}
		rs, err := c.AppsV1().ReplicaSets("default").Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template()}}, metav1.CreateOptions{})
		check(t, err)
		for j := range 3 {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", rs.Name, j), OwnerReferences: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", rs)}}, Spec: template().Spec}
			if !instant {
				p.Spec.NodeName = "worker"
			}
			_, err := c.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
			check(t, err)
		}
	}
	return d
}

// left counts the remaining Deployments, ReplicaSets and Pods, and how many of each are being deleted.
func left(t testing.TB, server *apitest.Server) string {
	t.Helper()
	c, ctx := server.Client(), t.Context()
	ds, err := c.AppsV1().Deployments("default").List(ctx, metav1.ListOptions{})
	check(t, err)
	rss, err := c.AppsV1().ReplicaSets("default").List(ctx, metav1.ListOptions{})
	check(t, err)
	pods, err := c.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	check(t, err)
	var all [3][]metav1.Object
	for i := range ds.Items {
		all[0] = append(all[0], &ds.Items[i])
	}
	for i := range rss.Items {
		all[1] = append(all[1], &rss.Items[i])
	}
	for i := range pods.Items {
		all[2] = append(all[2], &pods.Items[i])
	}
	var out []string
	for _, objects := range all {
		ending, owned := 0, 0
		for _, obj := range objects {
			if obj.GetDeletionTimestamp() != nil {
				ending++
			}
			if len(obj.GetOwnerReferences()) > 0 {
				owned++
			}
		}
		out = append(out, fmt.Sprintf("%d (%d ending, %d owned)", len(objects), ending, owned))
	}
	return strings.Join(out, ", ")
}

func becomes(t testing.TB, server *apitest.Server, want string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		if got := left(t, server); got != want {
			return "wanted " + want + ", there are " + got
		}
		return ""
	})
}

// endPods stands in for the kubelet: pods that are being deleted have terminated.
func endPods(t testing.TB, server *apitest.Server) {
	t.Helper()
	pods, err := server.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp != nil {
			check(t, server.Client().CoreV1().Pods("default").Delete(t.Context(), pod.Name, *metav1.NewDeleteOptions(0)))
		}
	}
}

func remove(t testing.TB, server *apitest.Server, name string, how metav1.DeletionPropagation) {
	t.Helper()
	check(t, server.Client().AppsV1().Deployments("default").Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}))
}

// kubectl delete --cascade=background: the Deployment is deleted at once, its ReplicaSets and pods follow.
func TestBackground(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, garbagecollector.New)
	deployment(t, server, "web", false)
	deployment(t, server, "other", false)
	becomes(t, server, "2 (0 ending, 0 owned), 4 (0 ending, 4 owned), 12 (0 ending, 12 owned)")
	remove(t, server, "web", metav1.DeletePropagationBackground)
	becomes(t, server, "1 (0 ending, 0 owned), 2 (0 ending, 2 owned), 12 (6 ending, 12 owned)")
	endPods(t, server)
	becomes(t, server, "1 (0 ending, 0 owned), 2 (0 ending, 2 owned), 6 (0 ending, 6 owned)")
}

// kubectl delete --cascade=foreground: the Deployment and its ReplicaSets exist until the last pod has terminated.
func TestForeground(t *testing.T) {
	server := apitest.Start(t)
	deployment(t, server, "web", false) // first: an owner does not wait for dependents that the collector has not observed yet, as with upstream's
	controllertest.Run(t, server, garbagecollector.New)
	remove(t, server, "web", metav1.DeletePropagationForeground)
	becomes(t, server, "1 (1 ending, 0 owned), 2 (2 ending, 2 owned), 6 (6 ending, 6 owned)")
	endPods(t, server)
	becomes(t, server, "0 (0 ending, 0 owned), 0 (0 ending, 0 owned), 0 (0 ending, 0 owned)")
}

// kubectl delete --cascade=orphan: the ReplicaSets stay, without an owner, and their pods with them.
func TestOrphan(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, garbagecollector.New)
	deployment(t, server, "web", false)
	remove(t, server, "web", metav1.DeletePropagationOrphan)
	becomes(t, server, "0 (0 ending, 0 owned), 2 (0 ending, 0 owned), 6 (0 ending, 6 owned)")
}

// Deletions while no collector ran are handled when one starts.
func TestStartsLate(t *testing.T) {
	server := apitest.Start(t)
	deployment(t, server, "background", true)
	deployment(t, server, "foreground", true)
	deployment(t, server, "orphan", true)
	deployment(t, server, "stays", true)
	remove(t, server, "background", metav1.DeletePropagationBackground)
	remove(t, server, "foreground", metav1.DeletePropagationForeground)
	remove(t, server, "orphan", metav1.DeletePropagationOrphan)
	controllertest.Run(t, server, garbagecollector.New)
	becomes(t, server, "1 (0 ending, 0 owned), 4 (0 ending, 2 owned), 12 (0 ending, 12 owned)")
}

func configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
}

// Owners that never existed, are in another namespace, or have the right name and the wrong uid, own nothing; the right one does.
func TestWrongOwners(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CoreV1()
	_, err := c.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{})
	check(t, err)
	owner, err := c.ConfigMaps("default").Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	check(t, err)
	right := ref("v1", "ConfigMap", owner)
	never, wrong := right, right
	never.Name, never.UID = "never", "00000000-0000-0000-0000-000000000001"
	wrong.UID = "00000000-0000-0000-0000-000000000002"
	two := []metav1.OwnerReference{right, never}
	two[0].Controller = nil
	controllertest.Run(t, server, garbagecollector.New)
	make := func(namespace, name string, owners ...metav1.OwnerReference) {
		_, err := c.ConfigMaps(namespace).Create(t.Context(), configMap(name, owners...), metav1.CreateOptions{})
		check(t, err)
	}
	make("default", "right", right)
	make("default", "never", never)
	make("default", "wrong", wrong)
	make("default", "two", two...)
	make("shop", "elsewhere", right)
	controllertest.Eventually(t, func() string {
		var names []string
		for _, namespace := range []string{"default", "shop"} {
			list, err := c.ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
			check(t, err)
			for _, cm := range list.Items {
				names = append(names, fmt.Sprintf("%s:%d", cm.Name, len(cm.OwnerReferences)))
			}
		}
		if want := []string{"owner:0", "right:1", "two:1"}; !slices.Equal(names, want) {
			return fmt.Sprintf("%v, not %v", names, want)
		}
		return ""
	})
	controllertest.Eventually(t, func() string {
		events, err := c.Events("shop").List(t.Context(), metav1.ListOptions{})
		check(t, err)
		want := fmt.Sprintf(`ownerRef [v1/ConfigMap, namespace: shop, name: owner, uid: %s] does not exist in namespace "shop"`, owner.UID)
		for _, e := range events.Items {
			if e.Reason == "OwnerRefInvalidNamespace" && e.Type == "Warning" && e.InvolvedObject.Name == "elsewhere" && e.InvolvedObject.Kind == "ConfigMap" && e.Message == want {
				return ""
			}
		}
		return "an event: " + want
	})
}

// A cluster-scoped object may own namespaced objects. A cluster-scoped object with a namespaced owner is left alone.
func TestWithoutNamespace(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CoreV1()
	controllertest.Run(t, server, garbagecollector.New)
	node, err := c.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, metav1.CreateOptions{})
	check(t, err)
	_, err = c.ConfigMaps("default").Create(t.Context(), configMap("of-node", ref("v1", "Node", node)), metav1.CreateOptions{})
	check(t, err)
	nonsense := ref("v1", "ConfigMap", configMap("x"))
	nonsense.UID = "00000000-0000-0000-0000-000000000001"
	_, err = c.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", OwnerReferences: []metav1.OwnerReference{nonsense}}}, metav1.CreateOptions{})
	check(t, err)
	check(t, c.Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}))
	controllertest.Eventually(t, func() string {
		if _, err := c.ConfigMaps("default").Get(t.Context(), "of-node", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "the config map of a node to go with it"
		}
		return ""
	})
	if _, err := c.Nodes().Get(t.Context(), "m", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// Objects that own each other can be deleted in the foreground, even all at the same time.
func TestCircle(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CoreV1().ConfigMaps("default")
	controllertest.Run(t, server, garbagecollector.New)
	for _, all := range []bool{false, true} {
		var circle []*corev1.ConfigMap
		for i := range 3 {
			cm, err := c.Create(t.Context(), configMap(fmt.Sprintf("c%d", i)), metav1.CreateOptions{})
			check(t, err)
			circle = append(circle, cm)
		}
		for i, cm := range circle {
			cm.OwnerReferences = []metav1.OwnerReference{ref("v1", "ConfigMap", circle[(i+1)%3])}
			_, err := c.Update(t.Context(), cm, metav1.UpdateOptions{})
			check(t, err)
		}
		foreground := metav1.DeletePropagationForeground
		for _, cm := range circle {
			if err := c.Delete(t.Context(), cm.Name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			if !all {
				break
			}
		}
		controllertest.Eventually(t, func() string {
			list, err := c.List(t.Context(), metav1.ListOptions{})
			check(t, err)
			if len(list.Items) > 0 {
				return fmt.Sprintf("the end of %d config maps", len(list.Items))
			}
			return ""
		})
	}
}

// An object that is changed all the time is deleted nevertheless, but not if a change gave it an owner.
func TestChangingAllTheTime(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client().CoreV1().ConfigMaps("default")
	controllertest.Run(t, server, garbagecollector.New)
	owner, err := c.Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
	check(t, err)
	_, err = c.Create(t.Context(), configMap("busy", ref("v1", "ConfigMap", owner)), metav1.CreateOptions{})
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			if _, err := c.Patch(ctx, "busy", types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, i), metav1.PatchOptions{}); err != nil {
				return
			}
		}
	}()
	check(t, c.Delete(t.Context(), "owner", metav1.DeleteOptions{}))
	<-done
	if ctx.Err() != nil {
		t.Error("an object that changes all the time was not deleted")
	}
}

// Of two ReplicaSets one is deleted in the foreground. Pods that both own stay and lose that owner; those that only it owns are deleted before it.
func TestTwoOwners(t *testing.T) {
	server := apitest.Start(t)
	c := server.Client()
	controllertest.Run(t, server, garbagecollector.New)
	var sets []*appsv1.ReplicaSet
	for _, name := range []string{"ends", "stays"} {
		rs, err := c.AppsV1().ReplicaSets("default").Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: template().Labels}, Template: template()}}, metav1.CreateOptions{})
		check(t, err)
		sets = append(sets, rs)
	}
	for i := range 10 {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), OwnerReferences: []metav1.OwnerReference{ref("apps/v1", "ReplicaSet", sets[0])}}, Spec: template().Spec}
		if i%2 == 0 {
			second := ref("apps/v1", "ReplicaSet", sets[1])
			second.Controller = nil
			pod.OwnerReferences = append(pod.OwnerReferences, second)
		}
		_, err := c.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		check(t, err)
	}
	foreground := metav1.DeletePropagationForeground
	check(t, c.AppsV1().ReplicaSets("default").Delete(t.Context(), "ends", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	becomes(t, server, "0 (0 ending, 0 owned), 1 (0 ending, 0 owned), 5 (0 ending, 5 owned)")
	pods, err := c.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	check(t, err)
	for _, pod := range pods.Items {
		if len(pod.OwnerReferences) != 1 || pod.OwnerReferences[0].UID != sets[1].UID {
			t.Errorf("%s is owned by %v", pod.Name, pod.OwnerReferences)
		}
	}
}
