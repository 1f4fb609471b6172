package resourcequota_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/resourcequota"
	"skiff/test/seed"
)

var now = metav1.DeleteOptions{GracePeriodSeconds: new(int64)}

func limit(t *testing.T, server *apitest.Server, name string, hard map[corev1.ResourceName]string) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	for name, value := range hard {
		q.Spec.Hard[name] = resource.MustParse(value)
	}
	if _, err := server.Client().CoreV1().ResourceQuotas("default").Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// expect waits until a quota's status has these amounts as used.
func expect(t *testing.T, server *apitest.Server, name string, used map[corev1.ResourceName]string) {
	t.Helper()
	controllertest.Eventually(t, func() string {
		q, err := server.Client().CoreV1().ResourceQuotas("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for name, value := range used {
			is, ok := q.Status.Used[name]
			if _, limited := q.Status.Hard[name]; !limited || !ok || is.Cmp(resource.MustParse(value)) != 0 {
				return fmt.Sprintf("%s used %v, not %s: %+v", name, is, value, q.Status)
			}
		}
		return ""
	})
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod("").Spec}}}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestQuota has a quota refuse what exceeds it, and allow it again after something was deleted.
func TestQuota(t *testing.T) {
	server := apitest.Start(t)
	core, apps, ctx := server.Client().CoreV1(), server.Client().AppsV1(), t.Context()
	stop := controllertest.Run(t, server, resourcequota.New)
	_, err := core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}, metav1.CreateOptions{})
	ok(t, err)
	limit(t, server, "q", map[corev1.ResourceName]string{"pods": "2", "count/deployments.apps": "1", "configmaps": "3", "count/widgets.example.com": "1"})
	expect(t, server, "q", map[corev1.ResourceName]string{"pods": "0", "count/deployments.apps": "0", "configmaps": "1"})

	for _, name := range []string{"a", "b"} {
		_, err := core.Pods("default").Create(ctx, pod(name), metav1.CreateOptions{})
		ok(t, err)
	}
	if _, err := core.Pods("default").Create(ctx, pod("c"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a third pod: %v", err)
	}
	ok(t, core.Pods("default").Delete(ctx, "a", now))
	expect(t, server, "q", map[corev1.ResourceName]string{"pods": "1"})
	b, err := core.Pods("default").Get(ctx, "b", metav1.GetOptions{})
	ok(t, err)
	controllertest.ReportPhase(t, server, b, corev1.PodSucceeded, "") // terminated, but not deleted
	expect(t, server, "q", map[corev1.ResourceName]string{"pods": "0"})

	_, err = apps.Deployments("default").Create(ctx, deployment("one"), metav1.CreateOptions{})
	ok(t, err)
	if _, err := apps.Deployments("default").Create(ctx, deployment("two"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("a second deployment: %v", err)
	}
	ok(t, apps.Deployments("default").Delete(ctx, "one", now))
	expect(t, server, "q", map[corev1.ResourceName]string{"count/deployments.apps": "0"})

	stop() // changes while the loop does not run
	_, err = core.Pods("default").Create(ctx, pod("d"), metav1.CreateOptions{})
	ok(t, err)
	ok(t, core.Pods("default").Delete(ctx, "d", now))
	ok(t, core.ConfigMaps("default").Delete(ctx, "before", now))
	expect(t, server, "q", map[corev1.ResourceName]string{"pods": "1", "configmaps": "1"})
	controllertest.Run(t, server, resourcequota.New)
	expect(t, server, "q", map[corev1.ResourceName]string{"pods": "0", "configmaps": "0"})

	// The limits change, and a quota counts quotas.
	q, err := core.ResourceQuotas("default").Get(ctx, "q", metav1.GetOptions{})
	ok(t, err)
	q.Spec.Hard = corev1.ResourceList{"resourcequotas": resource.MustParse("3"), "services": resource.MustParse("1")}
	_, err = core.ResourceQuotas("default").Update(ctx, q, metav1.UpdateOptions{})
	ok(t, err)
	expect(t, server, "q", map[corev1.ResourceName]string{"resourcequotas": "1", "services": "1"})
	limit(t, server, "r", map[corev1.ResourceName]string{"pods": "1"})
	expect(t, server, "q", map[corev1.ResourceName]string{"resourcequotas": "2"})
	ok(t, core.ResourceQuotas("default").Delete(ctx, "r", now))
	expect(t, server, "q", map[corev1.ResourceName]string{"resourcequotas": "1"})
}

// TestChurn creates and deletes pods as fast as possible while the loop is stopped and started: in the end the count is right.
func TestChurn(t *testing.T) {
	seed := seed.New(t)
	server := apitest.Start(t)
	core := server.Client().CoreV1()
	stop := controllertest.Run(t, server, resourcequota.New)
	limit(t, server, "q", map[corev1.ResourceName]string{"pods": "5", "secrets": "50"})
	expect(t, server, "q", map[corev1.ResourceName]string{"pods": "0"})
	ctx, end := context.WithTimeout(t.Context(), time.Second)
	defer end()
	var churn sync.WaitGroup
	for i := range 3 {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		churn.Go(func() {
			for ctx.Err() == nil {
				name := fmt.Sprintf("p%d-%d", i, random.IntN(4))
				if random.IntN(4) > 0 {
					_, _ = core.Pods("default").Create(ctx, pod(name), metav1.CreateOptions{})
				} else {
					_ = core.Pods("default").Delete(ctx, name, now)
				}
			}
		})
	}
	for random := rand.New(rand.NewPCG(seed, 99)); ctx.Err() == nil; time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond) {
		stop()
		stop = controllertest.Run(t, server, resourcequota.New)
	}
	churn.Wait()
	controllertest.Eventually(t, func() string {
		list, err := core.Pods("default").List(t.Context(), metav1.ListOptions{}) // a request that timed out may have been carried out after that
		ok(t, err)
		q, err := core.ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{})
		ok(t, err)
		if used := q.Status.Used.Pods().Value(); used != int64(len(list.Items)) {
			return fmt.Sprintf("%d of %d pods are counted", used, len(list.Items))
		}
		return ""
	})
}
