package resourcequota_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/resourcequota"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
	"skiff/internal/quota"
	"skiff/test/seed"
)

// TestChargesAgreeWithACount writes random objects concurrently: the quotas' charges equal a recount, and no limit is exceeded.
func TestChargesAgreeWithACount(t *testing.T) {
	seed := seed.New(t)
	w := newFixture(t)
	for round := range 20 {
		var group sync.WaitGroup
		for writer := range 8 {
			random := rand.New(rand.NewPCG(seed, uint64(round*100+writer)))
			group.Go(func() {
				for range 10 {
					w.write(random)
				}
			})
		}
		group.Wait()
		w.compare(fmt.Sprintf("round %d", round))
		w.deleteSome(rand.New(rand.NewPCG(seed, uint64(round))))
	}
	if w.admitted == 0 || w.refused == 0 {
		t.Errorf("%d writes admitted, %d refused: nothing was shown", w.admitted, w.refused)
	}
}

// fixture is a namespace with quotas of many kinds, and what was written to it.
type fixture struct {
	t          *testing.T
	store      *objectstest.Store
	plugin     admission.Plugin
	evaluators *quota.Evaluators

	mu                sync.Mutex
	last              int
	admitted, refused int
}

var (
	podsResource     = corev1.Resource("pods")
	servicesResource = corev1.Resource("services")
	claimsResource   = corev1.Resource("persistentvolumeclaims")
	mapsResource     = corev1.Resource("configmaps")
	resources        = []schema.GroupResource{podsResource, servicesResource, claimsResource, mapsResource, resourcev1.Resource("resourceclaims")}
	names            = []string{"objects", "compute", "besteffort", "deadline", "high", "storage"}
)

func newFixture(t *testing.T) *fixture {
	w := &fixture{t: t, store: objectstest.New(), evaluators: quota.New(quota.Cluster{Now: time.Now, Classes: &quota.DeviceClasses{},
		Pod: func(string, string) *corev1.Pod { return nil }, Claims: func(string) []*resourcev1.ResourceClaim { return nil }})}
	zero := func(name, spec string) {
		putQuota(t, w.store, name, spec, `{}`)
		w.recount(name)
	}
	zero("objects", `{hard: {pods: 40, count/pods: 45, services: 20, services.nodeports: 15, services.loadbalancers: 5, count/configmaps: 30}}`)
	zero("compute", `{hard: {requests.cpu: "12", limits.memory: 20Gi, requests.example.com/gpu: 7}, scopes: [NotBestEffort]}`)
	zero("besteffort", `{hard: {pods: 12}, scopes: [BestEffort]}`)
	zero("deadline", `{hard: {pods: 10}, scopes: [Terminating]}`)
	zero("high", `{hard: {pods: 8}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}}`)
	zero("storage", `{hard: {requests.storage: 60Gi, gold.storageclass.storage.k8s.io/requests.storage: 25Gi, gold.storageclass.storage.k8s.io/persistentvolumeclaims: 9}}`)
	w.plugin = resourcequota.New(w.store)
	return w
}

func (w *fixture) write(random *rand.Rand) {
	w.mu.Lock()
	w.last++
	meta := metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("o", w.last)}
	w.mu.Unlock()
	switch random.IntN(7) {
	case 0, 1, 2:
		w.create(podsResource, randomPod(random, meta))
	case 3:
		w.create(servicesResource, randomService(random, meta))
	case 4:
		w.create(claimsResource, randomClaim(random, meta))
	case 5:
		w.create(mapsResource, &corev1.ConfigMap{ObjectMeta: meta})
	case 6:
		w.grow(random, meta)
	}
}

func (w *fixture) create(r schema.GroupResource, obj catalog.Object) {
	if w.tried(admissiontest.Through(w.t, w.plugin, admissiontest.Create(obj))) {
		w.store.Put(r, obj)
	}
}

// grow creates a claim or a service and then lets it become larger.
func (w *fixture) grow(random *rand.Rand, meta metav1.ObjectMeta) {
	if random.IntN(2) == 0 {
		before, after := randomClaim(random, meta), randomClaim(random, meta)
		after.Spec.StorageClassName = before.Spec.StorageClassName
		sum := before.Spec.Resources.Requests[corev1.ResourceStorage].DeepCopy()
		sum.Add(after.Spec.Resources.Requests[corev1.ResourceStorage])
		after.Spec.Resources.Requests[corev1.ResourceStorage] = sum
		w.createAndUpdate(claimsResource, before, after)
		return
	}
	before, after := randomService(random, meta), randomService(random, meta)
	before.Spec.Type, after.Spec.Ports = corev1.ServiceTypeClusterIP, before.Spec.Ports
	w.createAndUpdate(servicesResource, before, after)
}

func (w *fixture) createAndUpdate(r schema.GroupResource, before, after catalog.Object) {
	w.create(r, before)
	if before.GetResourceVersion() == "" { // refused
		return
	}
	if w.tried(admissiontest.Through(w.t, w.plugin, admissiontest.Update(after, before))) {
		w.store.Put(r, after)
	}
}

func (w *fixture) tried(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.refused++
		return false
	}
	w.admitted++
	return true
}

func randomPod(random *rand.Rand, meta metav1.ObjectMeta) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: meta}
	if random.IntN(3) == 0 {
		pod.Spec.ActiveDeadlineSeconds = ptr.To[int64](60)
	}
	if random.IntN(3) == 0 {
		pod.Spec.PriorityClassName = []string{"high", "low"}[random.IntN(2)]
	}
	for i := range 1 + random.IntN(2) {
		c := corev1.Container{Name: fmt.Sprint("c", i)}
		if random.IntN(3) > 0 {
			c.Resources.Requests = corev1.ResourceList{"cpu": *resource.NewMilliQuantity(random.Int64N(900), resource.DecimalSI)}
			c.Resources.Limits = corev1.ResourceList{"memory": *resource.NewQuantity(random.Int64N(2<<30), resource.BinarySI)}
			if random.IntN(4) == 0 {
				c.Resources.Requests["example.com/gpu"] = resource.MustParse("1")
			}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

func randomService(random *rand.Rand, meta metav1.ObjectMeta) *corev1.Service {
	types := []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer}
	return &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Type: types[random.IntN(3)], Ports: make([]corev1.ServicePort, 1+random.IntN(3))}}
}

func randomClaim(random *rand.Rand, meta metav1.ObjectMeta) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(random.Int64N(4<<30), resource.BinarySI)}
	if random.IntN(2) == 0 {
		claim.Spec.StorageClassName = ptr.To("gold")
	}
	return claim
}

func (w *fixture) count(q *corev1.ResourceQuota) corev1.ResourceList {
	counted, err := w.evaluators.Used(q, resources, func(r schema.GroupResource) ([]quota.Object, error) {
		var list []quota.Object
		for _, obj := range w.store.List(r, "ns") {
			list = append(list, obj)
		}
		return list, nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return counted
}

// compare checks the quotas' charges against a recount of the objects.
func (w *fixture) compare(when string) {
	for _, name := range names {
		q := w.store.Get(quotas, "ns", name).(*corev1.ResourceQuota)
		if counted := w.count(q); !quota.Equal(counted, q.Status.Used) {
			w.t.Errorf("%s: %s was charged %v, there is %v", when, name, q.Status.Used, counted)
		}
		for name, value := range q.Status.Used {
			if value.Cmp(q.Status.Hard[name]) > 0 {
				w.t.Errorf("%s: %s is exceeded: %s", when, name, value.String())
			}
		}
	}
}

// deleteSome deletes objects as users do and recounts as the quota controller does.
func (w *fixture) deleteSome(random *rand.Rand) {
	for _, r := range resources {
		for _, obj := range w.store.List(r, "ns") {
			if random.IntN(3) == 0 {
				w.store.Remove(r, "ns", obj.GetName())
			}
		}
	}
	for _, name := range names {
		w.recount(name)
	}
}

func (w *fixture) recount(name string) {
	q := w.store.Get(quotas, "ns", name).(*corev1.ResourceQuota).DeepCopy()
	q.Status.Used = w.count(q)
	w.store.Put(quotas, q)
}
