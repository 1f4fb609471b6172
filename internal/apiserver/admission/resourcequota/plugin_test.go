package resourcequota_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/resourcequota"
	"skiff/internal/apiserver/objects"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

var quotas = corev1.Resource("resourcequotas")

func parse[O any](t testing.TB, obj O, text string) O {
	t.Helper()
	return admissiontest.Parse(t, obj, text)
}

// putQuota stores a quota that the controller has synced: status.hard is spec.hard.
func putQuota(t testing.TB, s *objectstest.Store, name, spec, used string) {
	t.Helper()
	q := parse(t, &corev1.ResourceQuota{}, fmt.Sprintf(`{metadata: {namespace: ns, name: %s}, spec: %s, status: {used: %s}}`, name, spec, used))
	q.Status.Hard = q.Spec.Hard.DeepCopy()
	s.Put(quotas, q)
}

func used(s objects.Reader, name string) string {
	list := s.Get(quotas, "ns", name).(*corev1.ResourceQuota).Status.Used
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(list)) {
		value := list[name]
		parts = append(parts, fmt.Sprintf("%s=%s", name, value.String()))
	}
	return strings.Join(parts, ",")
}

const plainPod = `{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c}]}}`

func TestOneQuota(t *testing.T) {
	pod := func(text string) catalog.Object { return parse(t, &corev1.Pod{}, text) }
	service := func(text string) catalog.Object { return parse(t, &corev1.Service{}, text) }
	claim := func(text string) catalog.Object { return parse(t, &corev1.PersistentVolumeClaim{}, text) }
	for _, c := range []struct {
		name, spec, used string
		write            *admission.Attributes
		dryRun           bool
		want, after      string
	}{
		{name: "a pod is charged", spec: `{hard: {pods: 5, requests.cpu: 2}}`, used: `{pods: 4, requests.cpu: 500m}`,
			write: admissiontest.Create(pod(`{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: 1500m}}}]}}`)),
			after: "pods=5,requests.cpu=2"},
		{name: "the last pod was the last", spec: `{hard: {pods: 5}}`, used: `{pods: 5}`, write: admissiontest.Create(pod(plainPod)),
			want: `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5`, after: "pods=5"},
		{name: "the error lists only what is exceeded, sorted", spec: `{hard: {pods: 5, requests.memory: 1Gi, requests.cpu: 1}}`, used: `{pods: 1, requests.memory: 1Gi, requests.cpu: 900m}`,
			write: admissiontest.Create(pod(`{metadata: {namespace: ns, generateName: p-}, spec: {containers: [{name: c, resources: {requests: {cpu: 200m, memory: 1Ki}}}]}}`)),
			want:  `pods "p-" is forbidden: exceeded quota: q, requested: requests.cpu=200m,requests.memory=1Ki, used: requests.cpu=900m,requests.memory=1Gi, limited: requests.cpu=1,requests.memory=1Gi`,
			after: "pods=1,requests.cpu=900m,requests.memory=1Gi"},
		{name: "cpu must be said", spec: `{hard: {limits.cpu: 5}}`, used: `{limits.cpu: 0}`, write: admissiontest.Create(pod(plainPod)),
			want: `pods "p" is forbidden: failed quota: q: must specify limits.cpu for: c`, after: "limits.cpu=0"},
		{name: "a quota that is not counted yet", spec: `{hard: {pods: 5}}`, used: `{}`, write: admissiontest.Create(pod(plainPod)),
			want: `pods "p" is forbidden: status unknown for quota: q, resources: pods`, after: ""},
		{name: "a dry run is checked", spec: `{hard: {pods: 5}}`, used: `{pods: 5}`, write: admissiontest.Create(pod(plainPod)), dryRun: true,
			want: `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5`, after: "pods=5"},
		{name: "a dry run is charged nothing", spec: `{hard: {pods: 5}}`, used: `{pods: 4}`, write: admissiontest.Create(pod(plainPod)), dryRun: true, after: "pods=4"},
		{name: "a quota on other things", spec: `{hard: {services: 0}}`, used: `{services: 0}`, write: admissiontest.Create(pod(plainPod)), after: "services=0"},
		{name: "a quota on other pods", spec: `{hard: {pods: 0}, scopes: [Terminating]}`, used: `{pods: 0}`, write: admissiontest.Create(pod(plainPod)), after: "pods=0"},
		{name: "a pod that gets a deadline moves to another quota", spec: `{hard: {pods: 1}, scopes: [Terminating]}`, used: `{pods: 1}`,
			write: admissiontest.Update(pod(`{metadata: {namespace: ns, name: p}, spec: {activeDeadlineSeconds: 5, containers: [{name: c}]}}`),
				pod(`{metadata: {namespace: ns, name: p, resourceVersion: "1"}, spec: {containers: [{name: c}]}}`)),
			want: `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`, after: "pods=1"},
		{name: "a resize is charged by the difference", spec: `{hard: {pods: 1, requests.cpu: 3}}`, used: `{pods: 1, requests.cpu: 1}`,
			write: admissiontest.Subresource(admissiontest.Update(
				pod(`{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: 3}}}]}}`),
				pod(`{metadata: {namespace: ns, name: p, resourceVersion: "1"}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`)), &corev1.Pod{}, "resize"),
			after: "pods=1,requests.cpu=3"},
		{name: "what gets smaller is given back by the controller only", spec: `{hard: {requests.cpu: 3}}`, used: `{requests.cpu: 5}`,
			write: admissiontest.Subresource(admissiontest.Update(
				pod(`{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`),
				pod(`{metadata: {namespace: ns, name: p, resourceVersion: "1"}, spec: {containers: [{name: c, resources: {requests: {cpu: 2}}}]}}`)), &corev1.Pod{}, "resize"),
			after: "requests.cpu=5"},
		{name: "a service that becomes a load balancer", spec: `{hard: {services: 1, services.loadbalancers: 0, services.nodeports: 5}}`, used: `{services: 1, services.loadbalancers: 0, services.nodeports: 0}`,
			write: admissiontest.Update(service(`{metadata: {namespace: ns, name: s}, spec: {type: LoadBalancer, ports: [{port: 1}]}}`),
				service(`{metadata: {namespace: ns, name: s, resourceVersion: "1"}, spec: {type: ClusterIP, ports: [{port: 1}]}}`)),
			want:  `services "s" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=0, limited: services.loadbalancers=0`,
			after: "services=1,services.loadbalancers=0,services.nodeports=0"},
		{name: "a claim by class", spec: `{hard: {gold.storageclass.storage.k8s.io/requests.storage: 10Gi, requests.storage: 100Gi}}`, used: `{gold.storageclass.storage.k8s.io/requests.storage: 8Gi, requests.storage: 8Gi}`,
			write: admissiontest.Create(claim(`{metadata: {namespace: ns, name: d}, spec: {storageClassName: gold, resources: {requests: {storage: 3Gi}}}}`)),
			want: `persistentvolumeclaims "d" is forbidden: exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=3Gi, ` +
				`used: gold.storageclass.storage.k8s.io/requests.storage=8Gi, limited: gold.storageclass.storage.k8s.io/requests.storage=10Gi`,
			after: "gold.storageclass.storage.k8s.io/requests.storage=8Gi,requests.storage=8Gi"},
		{name: "what a claim's status reports is charged in any case", spec: `{hard: {requests.storage: 2Gi}}`, used: `{requests.storage: 2Gi}`,
			write: admissiontest.Subresource(admissiontest.Update(
				claim(`{metadata: {namespace: ns, name: d}, spec: {resources: {requests: {storage: 1Gi}}}, status: {allocatedResources: {storage: 3Gi}}}`),
				claim(`{metadata: {namespace: ns, name: d, resourceVersion: "1"}, spec: {resources: {requests: {storage: 1Gi}}}}`)), &corev1.PersistentVolumeClaim{}, "status"),
			after: "requests.storage=4Gi"},
		{name: "objects of any resource", spec: `{hard: {count/configmaps: 1, configmaps: 1}}`, used: `{count/configmaps: 1, configmaps: 0}`,
			write: admissiontest.Create(parse(t, &corev1.ConfigMap{}, `{metadata: {namespace: ns, name: m}}`)),
			want:  `configmaps "m" is forbidden: exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1`,
			after: "configmaps=0,count/configmaps=1"},
		{name: "events are not counted", spec: `{hard: {count/events: 0}}`, used: `{count/events: 0}`,
			write: admissiontest.Create(parse(t, &corev1.Event{}, `{metadata: {namespace: ns, name: e}}`)), after: "count/events=0"},
		{name: "updates of what is only counted", spec: `{hard: {configmaps: 0}}`, used: `{configmaps: 1}`,
			write: admissiontest.Update(&corev1.ConfigMap{}, &corev1.ConfigMap{}), after: "configmaps=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := objectstest.New()
			putQuota(t, s, "q", c.spec, c.used)
			plugin := resourcequota.New(s)
			c.write.Namespace, c.write.DryRun = "ns", c.dryRun
			admissiontest.Expect(t, admissiontest.Through(t, plugin, c.write), c.want)
			if got := used(s, "q"); got != c.after {
				t.Errorf("used %s, want %s", got, c.after)
			}
		})
	}
}

// A quota that the controller has not synced has no status.hard: it limits nothing yet.
func TestNewQuotaLimitsNothing(t *testing.T) {
	s := objectstest.New()
	s.Put(quotas, parse(t, &corev1.ResourceQuota{}, `{metadata: {namespace: ns, name: q}, spec: {hard: {pods: 0}}}`))
	admissiontest.Expect(t, admissiontest.Through(t, resourcequota.New(s), admissiontest.Create(parse(t, &corev1.Pod{}, plainPod))), "")
}

func TestSeveralQuotas(t *testing.T) {
	s := objectstest.New()
	putQuota(t, s, "a", `{hard: {pods: 5}}`, `{pods: 0}`)
	putQuota(t, s, "b", `{hard: {pods: 1}, scopes: [BestEffort]}`, `{pods: 0}`)
	putQuota(t, s, "c", `{hard: {requests.cpu: 1}, scopes: [NotBestEffort]}`, `{requests.cpu: 0}`)
	plugin := resourcequota.New(s)
	through := func(pod, want string) {
		t.Helper()
		admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(parse(t, &corev1.Pod{}, pod))), want)
	}
	expect := func(want ...string) {
		t.Helper()
		if got := []string{used(s, "a"), used(s, "b"), used(s, "c")}; !slices.Equal(got, want) {
			t.Errorf("used %v, want %v", got, want)
		}
	}
	through(plainPod, "")
	expect("pods=1", "pods=1", "requests.cpu=0")
	through(plainPod, `pods "p" is forbidden: exceeded quota: b, requested: pods=1, used: pods=1, limited: pods=1`)
	expect("pods=1", "pods=1", "requests.cpu=0") // and the first was not charged for nothing
	through(`{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}`, "")
	expect("pods=2", "pods=1", "requests.cpu=1")
	through(`{metadata: {namespace: ns, name: p}, spec: {containers: [{name: c, resources: {requests: {memory: 1}}}]}}`,
		`pods "p" is forbidden: failed quota: c: must specify requests.cpu for: c`)
	expect("pods=2", "pods=1", "requests.cpu=1")
}

// countingStore counts the updates.
type countingStore struct {
	*objectstest.Store
	updates atomic.Int32
	before  func() // called before each write
	fail    error
}

func (c *countingStore) Update(ctx context.Context, r schema.GroupResource, sub, namespace, name string, change func(catalog.Object) error) error {
	c.updates.Add(1)
	if c.before != nil {
		c.before()
	}
	if c.fail != nil {
		return c.fail
	}
	return c.Store.Update(ctx, r, sub, namespace, name, change)
}

func TestParallelCreatesEndAtTheLimit(t *testing.T) {
	const writers, limit = 32, 10
	s := &countingStore{Store: objectstest.New()}
	putQuota(t, s.Store, "a", fmt.Sprintf(`{hard: {pods: %d}}`, limit), `{pods: 0}`)
	putQuota(t, s.Store, "b", fmt.Sprintf(`{hard: {count/pods: %d}}`, 2*limit), `{count/pods: 0}`)
	plugin := resourcequota.New(s)
	other := resourcequota.New(s) // another server
	var admitted, refused atomic.Int32
	var group sync.WaitGroup
	for i := range writers {
		group.Go(func() {
			p := plugin
			if i%4 == 0 {
				p = other
			}
			switch err := admissiontest.Through(t, p, admissiontest.Create(parse(t, &corev1.Pod{}, plainPod))); {
			case err == nil:
				admitted.Add(1)
			case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if admitted.Load() != limit || refused.Load() != writers-limit || used(s, "a") != fmt.Sprintf("pods=%d", limit) {
		t.Errorf("%d admitted, %d refused, %s", admitted.Load(), refused.Load(), used(s, "a"))
	}
}

// Requests that arrive while a quota is being charged are charged together.
func TestWaitingRequestsShareOneWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers = 20
		busy, release := make(chan struct{}), make(chan struct{})
		s := &countingStore{Store: objectstest.New(), before: sync.OnceFunc(func() { close(busy); <-release })}
		putQuota(t, s.Store, "q", `{hard: {pods: 15}}`, `{pods: 0}`)
		plugin := resourcequota.New(s)
		var admitted atomic.Int32
		var group sync.WaitGroup
		create := func() {
			if admissiontest.Through(t, plugin, admissiontest.Create(parse(t, &corev1.Pod{}, plainPod))) == nil {
				admitted.Add(1)
			}
		}
		group.Go(create)
		<-busy
		for range writers - 1 {
			group.Go(create)
		}
		synctest.Wait() // all others wait in line
		close(release)
		group.Wait()
		if admitted.Load() != 15 || s.updates.Load() != 2 || used(s, "q") != "pods=15" {
			t.Errorf("%d admitted with %d writes, %s", admitted.Load(), s.updates.Load(), used(s, "q"))
		}
	})
}

func TestWaitingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy, release := make(chan struct{}), make(chan struct{})
		s := &countingStore{Store: objectstest.New(), before: sync.OnceFunc(func() { close(busy); <-release })}
		putQuota(t, s.Store, "q", `{hard: {pods: 15}}`, `{pods: 0}`)
		plugin := resourcequota.New(s).(interface {
			Validate(context.Context, *admission.Attributes) error
		})
		var group sync.WaitGroup
		create := func(ctx context.Context, want string) {
			admissiontest.Expect(t, plugin.Validate(ctx, admissiontest.Create(parse(t, &corev1.Pod{}, plainPod))), want)
		}
		group.Go(func() { create(t.Context(), "") })
		<-busy
		ctx, cancel := context.WithCancel(t.Context())
		const timedOut = "Internal error occurred: resource quota evaluation timed out"
		group.Go(func() { create(ctx, timedOut) })
		synctest.Wait()
		cancel()
		synctest.Wait()
		group.Go(func() { create(t.Context(), timedOut) })
		time.Sleep(11 * time.Second) // in the bubble's time
		close(release)
		group.Wait()
		create(t.Context(), "")
		if used(s, "q") != "pods=2" {
			t.Errorf("those that left were charged: %s", used(s, "q"))
		}
	})
}

func TestFailedWriteRefusesConcernedRequests(t *testing.T) {
	s := &countingStore{Store: objectstest.New(), fail: errors.New("the store is gone")}
	putQuota(t, s.Store, "q", `{hard: {pods: 15}}`, `{pods: 0}`)
	plugin := resourcequota.New(s)
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(parse(t, &corev1.Pod{}, plainPod))), "the store is gone")
	s.fail = apierrors.NewNotFound(quotas, "q")
	admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(parse(t, &corev1.Pod{}, plainPod))), "")
}

// staleStore is a store whose cache shows an exhausted quota that has room again.
type staleStore struct {
	*objectstest.Store
	old *corev1.ResourceQuota
}

func (s *staleStore) Follow(r schema.GroupResource, changed func(before, after catalog.Object)) {
	if r == quotas {
		changed(nil, s.old)
	}
}

func TestStoredQuotaDecides(t *testing.T) {
	s := &staleStore{Store: objectstest.New()}
	putQuota(t, s.Store, "q", `{hard: {pods: 1}}`, `{pods: 1}`)
	s.old = s.Get(quotas, "ns", "q").(*corev1.ResourceQuota)
	putQuota(t, s.Store, "q", `{hard: {pods: 1}}`, `{pods: 0}`)
	plugin := resourcequota.New(s)
	through := func() error {
		return admissiontest.Through(t, plugin, admissiontest.Create(parse(t, &corev1.Pod{}, plainPod)))
	}
	admissiontest.Expect(t, through(), "")
	admissiontest.Expect(t, through(), `pods "p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1`)
}
