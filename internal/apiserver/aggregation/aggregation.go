package aggregation

import (
	"context"
	"crypto/tls"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"skiff/internal/apiserver/nonresource"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

const (
	// writers is how many APIServices are brought in line with what this server serves at once.
	writers = 5
	// checkers is how many servers are checked at once: one that hangs takes several seconds.
	checkers = 16
	// recheckEvery is how often the availability of a server is checked when nothing changes: what is behind the network cannot be watched.
	recheckEvery = 30 * time.Second
	// minRetry and maxRetry bound the back-off after a failed check.
	minRetry, maxRetry = 5 * time.Millisecond, 30 * time.Second
)

var apiServices = schema.GroupResource{Group: apiregistrationv1.GroupName, Resource: "apiservices"}

// Host is the server around this package.
type Host interface {
	// FollowService calls changed whenever a Service or its EndpointSlices change, until ctx ends.
	FollowService(ctx context.Context, namespace, name string, changed func())
	// DiscoveryChanged is called when Discovered returns something else than before.
	DiscoveryChanged()
	// PutDocuments and DeleteDocuments change the OpenAPI documents of a path such as "apis/example.com/v1", of a group: see openapi.Handler.
	PutDocuments(path, hash string, v3, v2 func() ([]byte, error)) error
	DeleteDocuments(path, group string)
}

// Options are what the package works with. All are required unless noted.
type Options struct {
	Host    Host
	Objects objects.Store
	// Resolve returns HOST:PORT of a ready endpoint of a Service, or of its external name.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Dial connects to endpoints, directly or through a tunnel.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// ClientCertificate returns the certificate of the front proxy, by which other servers know that they may believe the headers that name the user. It is
	// called for each connection, as certificates are renewed. Without it none is sent.
	ClientCertificate func() (*tls.Certificate, error)
	// ForwardRedirects has redirects of other servers forwarded to clients; they are refused otherwise. They are never followed.
	ForwardRedirects bool
	Metrics          prometheus.Registerer // nil registers none
	Log              *slog.Logger
}

// Aggregation has the APIServices.
type Aggregation struct {
	Options
	stopping context.Context // that of New
	metrics  *metrics
	queue    workqueue.TypedRateLimitingInterface[string] // names of APIServices
	checks   workqueue.TypedRateLimitingInterface[string] // names of APIServices whose servers are checked
	local    local
	routes   atomic.Pointer[map[schema.GroupVersion]*Backend] // nil if no APIService names a Service

	mu       sync.Mutex
	backends map[string]*Backend // by the name of the APIService
	// follows has the Services that are followed, with what ends that.
	follows map[serviceKey]context.CancelFunc
	// following counts the goroutines that follow Services; Run waits for them.
	following sync.WaitGroup
	running   context.Context // that of Run; nil before
}

// serviceKey names a Service.
type serviceKey struct{ namespace, name string }

// New returns the package's loop, which follows the APIServices until ctx ends: see objects.Reader.Follow.
func New(ctx context.Context, o Options) *Aggregation {
	a := &Aggregation{Options: o, stopping: ctx, metrics: newMetrics(o.Metrics), backends: map[string]*Backend{}, follows: map[serviceKey]context.CancelFunc{},
		queue: newQueue(ctx), checks: newQueue(ctx)}
	a.local.init()
	o.Objects.Follow(apiServices, a.changed)
	return a
}

// newQueue returns a queue that is shut down when ctx ends.
func newQueue(ctx context.Context) workqueue.TypedRateLimitingInterface[string] {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry))
	context.AfterFunc(ctx, q.ShutDown)
	return q
}

// changed is called for each change of an APIService. What is routed to other servers changes at once.
func (a *Aggregation) changed(before, after catalog.Object) {
	name := ""
	if after != nil {
		name = after.GetName()
		a.route(after.(*apiregistrationv1.APIService))
	} else {
		name = before.GetName()
		a.unroute(name)
	}
	a.queue.Add(name)
}

// route has requests sent where an APIService says.
func (a *Aggregation) route(s *apiregistrationv1.APIService) {
	if s.Spec.Service == nil {
		a.unroute(s.Name)
		return
	}
	available := isAvailable(s)
	a.mu.Lock()
	old := a.backends[s.Name]
	if old != nil && old.uid == s.UID && apiequality.Semantic.DeepEqual(old.spec, s.Spec) {
		old.available.Store(available)
		a.mu.Unlock()
		return
	}
	b := newBackend(a, s)
	b.available.Store(available)
	b.adopt(old)
	b.putting.Lock() // until what is described of the group version is ready to be replaced
	defer b.putting.Unlock()
	a.backends[s.Name] = b
	a.publishRoutes()
	a.follow()
	a.mu.Unlock()
	if old != nil {
		old.retire()
	} else {
		a.Host.DeleteDocuments(b.path(), b.gv.Group) // those of definitions that have the group version, too
	}
	a.Host.DiscoveryChanged()
}

// unroute ends the routing of an APIService that is gone or local.
func (a *Aggregation) unroute(name string) {
	a.mu.Lock()
	old := a.backends[name]
	if old == nil {
		a.mu.Unlock()
		return
	}
	delete(a.backends, name)
	a.publishRoutes()
	a.follow()
	a.mu.Unlock()
	old.retire()
	a.Host.DeleteDocuments(old.path(), old.gv.Group)
	a.Host.DiscoveryChanged()
}

// publishRoutes makes the routes of requests those of the backends. The mutex is held.
func (a *Aggregation) publishRoutes() {
	if len(a.backends) == 0 {
		a.routes.Store(nil)
		return
	}
	routes := make(map[schema.GroupVersion]*Backend, len(a.backends))
	for _, b := range a.backends {
		routes[b.gv] = b
	}
	a.routes.Store(&routes)
}

// Serves reports whether another server serves a group version.
func (a *Aggregation) Serves(gv schema.GroupVersion) bool {
	routes := a.routes.Load()
	return routes != nil && (*routes)[gv] != nil
}

// Backend returns the server of a group version, if that is another one. path is that of the request.
func (a *Aggregation) Backend(group, version, path string) *Backend {
	routes := a.routes.Load()
	if routes == nil {
		return nil
	}
	if path == "/api" {
		version = "v1"
	}
	b := (*routes)[schema.GroupVersion{Group: group, Version: version}]
	if b == nil || !b.serves(path) {
		return nil
	}
	return b
}

// follow follows the Services of all backends, and no others. The mutex is held.
func (a *Aggregation) follow() {
	if a.running == nil || a.running.Err() != nil {
		return
	}
	used := map[serviceKey]bool{}
	for _, b := range a.backends {
		key := b.service()
		used[key] = true
		if a.follows[key] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(a.running)
		a.follows[key] = cancel
		a.following.Go(func() {
			a.Host.FollowService(ctx, key.namespace, key.name, func() { a.serviceChanged(key) })
		})
	}
	for key, cancel := range a.follows {
		if !used[key] {
			cancel()
			delete(a.follows, key)
		}
	}
}

// serviceChanged has the APIServices of a Service checked.
func (a *Aggregation) serviceChanged(key serviceKey) {
	for _, b := range a.all() {
		if b.service() == key {
			a.checks.Add(b.name)
		}
	}
}

// all returns the backends, sorted by name.
func (a *Aggregation) all() []*Backend {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.backends), func(x, y *Backend) int { return strings.Compare(x.name, y.name) })
}

func (a *Aggregation) backend(name string) *Backend {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.backends[name]
}

// Run reconciles APIServices until ctx, that of New, ends.
func (a *Aggregation) Run(ctx context.Context) {
	a.local.start(a.Objects)
	a.queueLocal() // before any APIService is reconciled: one of a definition would be removed
	a.mu.Lock()
	a.running = ctx
	a.follow()
	a.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { a.work(ctx, a.checks, checkers, a.check) })
	a.work(ctx, a.queue, writers, a.reconcile)
	wg.Wait()
	a.following.Wait()
	for _, b := range a.all() {
		b.close()
	}
}

// work calls do for the names in a queue, for several at once, until the queue is shut down. do asks to be called again after a time if that is not zero, and
// with back-off if it is negative or there is an error.
func (a *Aggregation) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], workers int, do func(context.Context, string) (time.Duration, error)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, workers)
	for {
		name, ended := queue.Get()
		if ended {
			return
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			a.doOne(ctx, queue, name, do)
		})
	}
}

func (a *Aggregation) doOne(ctx context.Context, queue workqueue.TypedRateLimitingInterface[string], name string, do func(context.Context, string) (time.Duration, error)) {
	defer queue.Done(name)
	again, err := do(ctx, name)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		a.Log.Warn("failed to reconcile an APIService", "name", name, "err", err)
		queue.AddRateLimited(name)
	case again < 0:
		queue.AddRateLimited(name)
	default:
		queue.Forget(name)
		if again > 0 {
			queue.AddAfter(name, again)
		}
	}
}

// reconcile brings an APIService in line with what this server serves. Servers are checked elsewhere, so that one that hangs delays nothing here.
func (a *Aggregation) reconcile(ctx context.Context, name string) (again time.Duration, err error) {
	if name == allLocal {
		a.queueLocal()
		return 0, nil
	}
	if err := a.reconcileLocal(ctx, name); err != nil {
		return 0, err
	}
	s, _ := a.Objects.Get(apiServices, "", name).(*apiregistrationv1.APIService)
	switch {
	case s == nil:
		a.metrics.forget(name)
		return 0, nil
	case s.Spec.Service == nil:
		return 0, a.setAvailable(ctx, s, localCondition())
	}
	a.checks.Add(name)
	return 0, nil
}

// check brings the condition of an APIService in line with whether its server answers, and learns what that serves.
func (a *Aggregation) check(ctx context.Context, name string) (again time.Duration, err error) {
	s, _ := a.Objects.Get(apiServices, "", name).(*apiregistrationv1.APIService)
	b := a.backend(name)
	if s == nil || b == nil || b.uid != s.UID {
		return 0, nil // the change that is to come queues the name again
	}
	condition := b.check(ctx)
	if ctx.Err() != nil {
		return 0, nil
	}
	err = a.setAvailable(ctx, s, condition)
	if a.Objects.Get(apiServices, "", name) == nil {
		a.metrics.forget(name) // it was deleted meanwhile
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if condition.Status != apiregistrationv1.ConditionTrue {
		b.setStale()
		if condition.Reason == reasonFailedDiscovery {
			return -1, nil
		}
		return recheckEvery, nil
	}
	err = b.refresh(ctx)
	if b.report(err) {
		a.Log.Warn("failed to learn what an aggregated API server serves", "apiservice", name, "err", err)
	}
	if err != nil {
		return -1, nil
	}
	return recheckEvery, nil
}

// Discovered returns what discovery says of the group versions that other servers serve, sorted by the names of their APIServices.
func (a *Aggregation) Discovered() []nonresource.Aggregated {
	var all []nonresource.Aggregated
	for _, b := range a.all() {
		all = append(all, nonresource.Aggregated{GroupVersion: b.gv, Priority: nonresource.Priority{Group: b.spec.GroupPriorityMinimum, Version: b.spec.VersionPriority},
			Discovery: b.discovery()})
	}
	return all
}
