package identity_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"skiff/internal/apiserver"
	"skiff/skifftest"
)

const (
	creators  = 32
	namespace = "limited"
)

// limits holds the hard limits of the tests' quotas, two of which are about the same objects.
var limits = map[string]corev1.ResourceList{
	"counts":  {"count/configmaps": resource.MustParse("50"), "pods": resource.MustParse("60")},
	"compute": {"requests.cpu": resource.MustParse("4"), "requests.memory": resource.MustParse("64Gi")}, // 40 pods
	"maps":    {"configmaps": resource.MustParse("45")},
}

// The numbers of objects that fit: the least that any quota allows.
const (
	podsFit = 40
	mapsFit = 45
)

// TestQuota: 32 clients, each over a connection of its own, create more than quotas allow.
func TestQuota(t *testing.T) {
	server := skifftest.Start(t, skifftest.WithServer(func(o *apiserver.Options) { o.AggregateRoles = true }))
	q := newQuotas(t, server.Client())
	for i := range creators {
		q.addClient(server.ConfigFor(fmt.Sprint("creator-", i), "creators"))
	}
	t.Run("creates alone", q.fillUp)
	t.Run("creates among deletes and failures", q.stir)
}

// TestQuotaOfProgram does the same with the program, which keeps its objects in etcd.
func TestQuotaOfProgram(t *testing.T) {
	p := startProgram(t, "--controllers", aggregation)
	config := configOf(t, p.data, "admin")
	q := newQuotas(t, clientOf(t, config))
	defaultAccount(t, q.admin, namespace)
	ca := clusterCA(t, p.data, "ca")
	for i := range creators {
		q.addClient(withCertificate(t, config, ca.certify(fmt.Sprint("creator-", i), time.Hour, "creators")))
	}
	q.fillUp(t)
	q.stir(t)
}

// quotas is a namespace with quotas, and the clients that write in it.
type quotas struct {
	t       *testing.T
	admin   kubernetes.Interface
	clients []kubernetes.Interface
	next    atomic.Int64
}

func newQuotas(t *testing.T, admin kubernetes.Interface) *quotas {
	t.Helper()
	q := &quotas{t: t, admin: admin}
	newNamespace(t, admin, namespace)
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "creators"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "creators"}}}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, hard := range limits {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}}
		if _, err := admin.CoreV1().ResourceQuotas(namespace).Create(t.Context(), quota, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	q.recount(t)
	return q
}

// addClient adds a client with a connection of its own.
func (q *quotas) addClient(config *rest.Config) {
	q.t.Helper()
	config.Dial = (&net.Dialer{}).DialContext // client-go shares connections only between equal dialers
	client := clientOf(q.t, config)
	q.clients = append(q.clients, client)
	if len(q.clients) == 1 {
		wait(q.t, "the role is heeded", func() error {
			_, err := client.CoreV1().Pods(namespace).List(q.t.Context(), metav1.ListOptions{})
			return err
		})
	}
}

// recount does what the quota controller does: it counts the objects and writes the status.
func (q *quotas) recount(t *testing.T) {
	t.Helper()
	used := q.count(t)
	for name, hard := range limits {
		quota, err := q.admin.CoreV1().ResourceQuotas(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		quota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{}}
		for what := range hard {
			quota.Status.Used[what] = used[what]
		}
		if _, err := q.admin.CoreV1().ResourceQuotas(namespace).UpdateStatus(t.Context(), quota, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// count returns the usage of every resource.
func (q *quotas) count(t *testing.T) corev1.ResourceList {
	t.Helper()
	pods, err := q.admin.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	maps, err := q.admin.CoreV1().ConfigMaps(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	whole := func(n int) resource.Quantity { return *resource.NewQuantity(int64(n), resource.DecimalSI) }
	used := corev1.ResourceList{"pods": whole(len(pods.Items)), "configmaps": whole(len(maps.Items)), "count/configmaps": whole(len(maps.Items)),
		"requests.cpu": {}, "requests.memory": {}}
	for _, pod := range pods.Items {
		for name, amount := range pod.Spec.Containers[0].Resources.Requests {
			sum := used["requests."+name]
			sum.Add(amount)
			used["requests."+name] = sum
		}
	}
	return used
}

// check compares the objects, and the status of the quotas, with what fits. If exactly is false, the status may be higher than the usage: what
// a failed write was charged is corrected by the next recount.
func (q *quotas) check(t *testing.T, exactly bool) {
	t.Helper()
	used := q.count(t)
	for name, hard := range limits {
		quota, err := q.admin.CoreV1().ResourceQuotas(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for what, most := range hard {
			is, said := used[what], quota.Status.Used[what]
			if is.Cmp(most) > 0 || said.Cmp(most) > 0 || is.Cmp(said) > 0 || exactly && is.Cmp(said) != 0 {
				t.Errorf("%s: there is %s of %s, the quota says %s of %s", name, is.String(), what, said.String(), most.String())
			}
		}
	}
}

// full fails the test unless exactly as many objects exist as fit.
func (q *quotas) full(t *testing.T) {
	t.Helper()
	used := q.count(t)
	if pods, maps := used.Pods().Value(), used["configmaps"]; pods != podsFit || maps.Value() != mapsFit {
		t.Errorf("there are %d pods and %d config maps, %d and %d fit", pods, maps.Value(), podsFit, mapsFit)
	}
}

// each calls a function for all clients concurrently.
func (q *quotas) each(do func(client kubernetes.Interface, n int)) {
	var clients sync.WaitGroup
	for n, client := range q.clients {
		clients.Go(func() { do(client, n) })
	}
	clients.Wait()
}

// createPod and createMap create an object and report whether the quotas allowed it.
func (q *quotas) createPod(ctx context.Context, c kubernetes.Interface) (string, bool) {
	pod := newPod(fmt.Sprint("pod-", q.next.Add(1)))
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("64Mi")}
	_, err := c.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
	return pod.Name, q.fitted(err)
}

func (q *quotas) createMap(ctx context.Context, c kubernetes.Interface) (string, bool) {
	name := fmt.Sprint("map-", q.next.Add(1))
	_, err := c.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return name, q.fitted(err)
}

func (q *quotas) fitted(err error) bool {
	if err != nil && !(apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ")) {
		q.t.Error(err)
	}
	return err == nil
}

// fillUp creates objects concurrently until no more fit. Nothing else happens meanwhile, so the status of the quotas is exact.
func (q *quotas) fillUp(t *testing.T) {
	var pods, maps atomic.Int64
	q.each(func(client kubernetes.Interface, _ int) {
		for range 3 {
			if _, ok := q.createPod(t.Context(), client); ok {
				pods.Add(1)
			}
			if _, ok := q.createMap(t.Context(), client); ok {
				maps.Add(1)
			}
		}
	})
	if pods.Load() != podsFit || maps.Load() != mapsFit {
		t.Errorf("created %d pods and %d config maps, %d and %d fit", pods.Load(), maps.Load(), podsFit, mapsFit)
	}
	q.full(t)
	q.check(t, true)
}

// stir creates, deletes, and creates invalid objects concurrently; then the quotas are recounted and filled up.
func (q *quotas) stir(t *testing.T) {
	ctx := t.Context()
	const rounds = 3
	for range rounds {
		q.each(func(client kubernetes.Interface, n int) {
			random := rand.New(rand.NewPCG(uint64(n), uint64(q.next.Add(1))))
			var mine []string
			for range 6 {
				switch random.IntN(5) {
				case 0:
					if name, ok := q.createPod(ctx, client); ok {
						mine = append(mine, "pod "+name)
					}
				case 1:
					if name, ok := q.createMap(ctx, client); ok {
						mine = append(mine, "map "+name)
					}
				case 2: // an existing or an invalid object
					taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "map-1"}}
					if _, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, taken, metav1.CreateOptions{}); err == nil {
						mine = append(mine, "map map-1")
					}
					if _, err := client.CoreV1().Pods(namespace).Create(ctx, newPod("Not_A_Name"), metav1.CreateOptions{}); err == nil {
						t.Error("created what cannot be")
					}
				case 3: // an object of another client
					q.deleteAny(ctx, client, random)
				case 4:
					for _, thing := range mine {
						q.delete(ctx, client, thing)
					}
					mine = nil
				}
			}
		})
		q.check(t, false)
		q.recount(t)
		q.check(t, true)
	}
	q.each(func(client kubernetes.Interface, _ int) {
		for range 3 {
			q.createPod(ctx, client)
			q.createMap(ctx, client)
		}
	})
	q.full(t)
	q.check(t, true)
}

func (q *quotas) deleteAny(ctx context.Context, client kubernetes.Interface, random *rand.Rand) {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{Limit: 10})
	if err != nil {
		q.t.Error(err)
		return
	}
	if len(pods.Items) > 0 {
		q.delete(ctx, client, "pod "+pods.Items[random.IntN(len(pods.Items))].Name)
	}
}

func (q *quotas) delete(ctx context.Context, client kubernetes.Interface, thing string) {
	kind, name, _ := strings.Cut(thing, " ")
	var err error
	if kind == "pod" {
		err = client.CoreV1().Pods(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	} else {
		err = client.CoreV1().ConfigMaps(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) && !errors.Is(err, context.Canceled) {
		q.t.Error(err)
	}
}
