package aggregation

import (
	"context"
	"sync"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"skiff/internal/apiserver/nonresource"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// managed is the label of APIServices that this server keeps, and what it may say: that they are kept all the time, or brought in line once after a start.
const (
	managed        = "kube-aggregator.kubernetes.io/automanaged"
	managedAlways  = "true"
	managedOnStart = "onstart"
)

// allLocal is what stands in the queue for all APIServices of what this server serves. No object has that name.
const allLocal = ""

// local has the APIServices that there should be of what this server serves.
type local struct {
	mu      sync.Mutex
	infos   []*catalog.Info          // what is served, as it was said last
	wanted  map[string]wantedService // by name; made of infos
	atStart map[string]bool          // the APIServices that there were when the loop began
	synced  map[string]bool          // those that were reconciled once since then
}

// wantedService is an APIService that there should be.
type wantedService struct {
	group, version string
	priority       nonresource.Priority
	mode           string // managedAlways or managedOnStart
}

func (l *local) init() {
	l.wanted, l.atStart, l.synced = map[string]wantedService{}, map[string]bool{}, map[string]bool{}
}

// start remembers which APIServices there are before the loop begins.
func (l *local) start(store objects.Reader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, obj := range store.List(apiServices, "") {
		l.atStart[obj.GetName()] = true
	}
}

// SetServed says which resources this server serves. It is cheap: their APIServices follow a moment later.
func (a *Aggregation) SetServed(infos []*catalog.Info) {
	a.local.mu.Lock()
	a.local.infos = infos
	a.local.mu.Unlock()
	a.queue.Add(allLocal)
}

// queueLocal queues the APIServices of which there should be others than before.
func (a *Aggregation) queueLocal() {
	l := &a.local
	l.mu.Lock()
	next := wantedServices(l.infos)
	before := l.wanted
	l.wanted = next
	l.mu.Unlock()
	for name, w := range next {
		if before[name] != w {
			a.queue.Add(name)
		}
	}
	for name := range before {
		if _, still := next[name]; !still {
			a.queue.Add(name)
		}
	}
}

// wantedServices returns the APIServices of resources that this server serves. The group of the APIServices themselves has none, as upstream.
func wantedServices(infos []*catalog.Info) map[string]wantedService {
	wanted := map[string]wantedService{}
	var last schema.GroupVersion
	for _, info := range infos {
		gv := info.GVR.GroupVersion()
		if gv == last || gv.Group == apiregistrationv1.GroupName {
			continue
		}
		last = gv
		w := wantedService{gv.Group, gv.Version, nonresource.PriorityOf(gv), managedAlways}
		if nonresource.Builtin(gv) {
			w.mode = managedOnStart
		}
		wanted[gv.Version+"."+gv.Group] = w
	}
	return wanted
}

func (w *wantedService) spec() apiregistrationv1.APIServiceSpec {
	return apiregistrationv1.APIServiceSpec{Group: w.group, Version: w.version, GroupPriorityMinimum: w.priority.Group, VersionPriority: w.priority.Version}
}

// change is what is done about an APIService.
type change int

const (
	nothing change = iota
	create
	update
	remove
)

// decide returns what is done about an APIService, as upstream: what users made, or took over by removing the label, is left alone; what is kept on start is
// written once. wanted and current are nil if there is none. atStart says that it existed when the loop began, synced that it was reconciled since then.
func decide(wanted *wantedService, current *apiregistrationv1.APIService, atStart, synced bool) change {
	mode := ""
	if current != nil {
		mode = current.Labels[managed]
	}
	switch {
	case current == nil && wanted == nil, wanted != nil && wanted.mode == managedOnStart && synced:
		return nothing
	case current == nil:
		return create
	case mode != managedAlways && mode != managedOnStart, mode == managedOnStart && (synced || !atStart):
		return nothing
	case wanted == nil:
		return remove
	case apiequality.Semantic.DeepEqual(current.Spec, wanted.spec()):
		return nothing
	}
	return update
}

// reconcileLocal brings an APIService in line with what this server serves.
func (a *Aggregation) reconcileLocal(ctx context.Context, name string) error {
	current, _ := a.Objects.Get(apiServices, "", name).(*apiregistrationv1.APIService)
	l := &a.local
	l.mu.Lock()
	var wanted *wantedService
	if w, ok := l.wanted[name]; ok {
		wanted = &w
	}
	what := decide(wanted, current, l.atStart[name], l.synced[name])
	l.mu.Unlock()
	var err error
	switch what {
	case create:
		err = a.Objects.Create(ctx, apiServices, &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{managed: wanted.mode}}, Spec: wanted.spec()})
		if apierrors.IsAlreadyExists(err) {
			return nil // its event is to come
		}
	case update:
		err = a.Objects.Update(ctx, apiServices, "", "", name, func(obj catalog.Object) error {
			obj.(*apiregistrationv1.APIService).Spec = wanted.spec()
			return nil
		})
	case remove:
		err = a.Objects.Delete(ctx, apiServices, "", name, current.UID)
	}
	if err != nil && !isGone(err) {
		return err
	}
	l.mu.Lock()
	l.synced[name] = true
	l.mu.Unlock()
	return nil
}

// isGone reports whether an object was deleted, or changed, since it was read: it is queued again.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }
