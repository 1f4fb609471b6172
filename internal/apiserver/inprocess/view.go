package inprocess

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/registry"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/client"
	"skiff/internal/journey"
)

// Server is an API server as the components of its process reach it.
type Server struct {
	http.Handler // serves whatever is no list or watch of shared objects
	API          *verbs.API
	Journey      *journey.Recorder // nil if no journeys are recorded
	// Aggregated reports whether another server serves a group version: what is here of it is not shared then.
	Aggregated func(schema.GroupVersion) bool
}

// As returns the server as a user reaches it: see client.ForServer.
func (s *Server) As(user *authn.User) client.View {
	who := user.DeepCopy()
	if !slices.Contains(who.Groups, authn.SystemAuthenticated) {
		who.Groups = append(who.Groups, authn.SystemAuthenticated)
	}
	return view{s, who}
}

// view is the server as one user reaches it.
type view struct {
	server *Server
	user   *authn.User
}

// ServeHTTP serves a request as one of the user.
func (v view) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.server.ServeHTTP(w, r.WithContext(authn.InProcess(r.Context(), v.user)))
}

// PutSpan records a span of a journey with the user as its source.
func (v view) PutSpan(s journey.Span) {
	s.Source = v.user.Username
	v.server.Journey.PutSpan(s)
}

// Kinds returns the kinds of the resources that can be listed and watched as shared objects.
func (v view) Kinds() map[schema.GroupVersionResource]schema.GroupVersionKind {
	kinds := map[schema.GroupVersionResource]schema.GroupVersionKind{}
	for gvr, end := range v.server.API.Served().Endpoints {
		if shares(end) && !v.server.Aggregated(gvr.GroupVersion()) {
			kinds[gvr] = end.Info.GVK
		}
	}
	return kinds
}

// Shares reports whether a resource can be listed and watched as shared objects.
func (v view) Shares(resource schema.GroupVersionResource) bool {
	return shares(v.server.API.Served().Endpoints[resource]) && !v.server.Aggregated(resource.GroupVersion())
}

func shares(end *verbs.Endpoint) bool {
	return end != nil && end.Registry != nil && verbs.Offers(end.Info.Verbs, "watch")
}

// List returns shared objects of the cache, which the caller must not change.
func (v view) List(ctx context.Context, what client.Shared, opts metav1.ListOptions) ([]runtime.Object, metav1.ListMeta, error) {
	reader, err := v.reader(ctx, "list", what, &opts)
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	if err := registry.ValidateListOptions(&opts, false); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	defer reader.share()() // so that all who list at once get the same objects
	page, err := reader.end.Registry.List(ctx, registry.List{Selector: reader.selector, Limit: max(opts.Limit, 0), Continue: opts.Continue,
		ResourceVersion: opts.ResourceVersion, Match: opts.ResourceVersionMatch})
	if err != nil {
		return nil, metav1.ListMeta{}, err
	}
	if err := page.Load(ctx); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	if page.Items, err = reader.end.Registry.CurrentAll(ctx, page.Items, reader.selector.Reading); err != nil {
		return nil, metav1.ListMeta{}, err
	}
	objects := make([]runtime.Object, len(page.Items))
	for i, it := range page.Items {
		if objects[i], err = reader.object(it); err != nil {
			return nil, metav1.ListMeta{}, err
		}
	}
	return objects, response.ListMeta(page), nil
}

// Watch streams changes with shared objects of the cache, which the caller must not change.
func (v view) Watch(ctx context.Context, what client.Shared, opts metav1.ListOptions) (watch.Interface, error) {
	reader, err := v.reader(ctx, "watch", what, &opts)
	if err != nil {
		return nil, err
	}
	if err := registry.ValidateListOptions(&opts, true); err != nil {
		return nil, err
	}
	release := reader.share()
	ctx, cancel := context.WithCancel(ctx)
	started, err := reader.end.Registry.StartWatch(ctx, reader.selector, &opts)
	if err != nil {
		release()
		cancel()
		return nil, err
	}
	w := &sharedWatch{sharedReader: reader, watch: started, opts: &opts, events: make(chan watch.Event), cancel: cancel}
	stop := context.AfterFunc(v.server.API.Stopping, cancel)
	go func() {
		defer close(w.events)
		defer release()
		defer cancel()
		defer stop()
		defer started.Close()
		w.run(ctx)
	}()
	return w, nil
}

// reader does for a list or watch what the front and the verb do for a request: it finds the resource, authorizes the user and parses the selectors.
func (v view) reader(ctx context.Context, verb string, what client.Shared, opts *metav1.ListOptions) (sharedReader, error) {
	s := v.server
	end := s.API.Served().Endpoints[what.Resource]
	if end == nil || end.Registry == nil {
		return sharedReader{}, response.ErrNotFound
	}
	if !end.Info.Namespaced {
		what.Namespace = ""
	}
	selector, err := end.Registry.NewSelector(end.Info, what.Namespace, opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return sharedReader{}, err
	}
	attributes := &authz.Attributes{User: v.user, Verb: verb, Resource: true, Group: what.Resource.Group, Version: what.Resource.Version,
		Plural: what.Resource.Resource, Namespace: what.Namespace, Name: selector.Name, FieldSelector: opts.FieldSelector, LabelSelector: opts.LabelSelector}
	if decision, reason, err := s.API.Authorizer.Authorize(ctx, attributes); decision != authz.Allow {
		return sharedReader{}, response.Forbidden(attributes, reason, err)
	}
	if !s.API.Ready.Load() {
		return sharedReader{}, apierrors.NewServiceUnavailable("the server is starting or stopping")
	}
	if what.MetadataOnly { // for the garbage collector and others that must go on whatever becomes of webhooks
		selector.Reading, selector.Uninitialized = registry.StoredMetadata, true
	}
	return sharedReader{end: end, selector: selector, metadataOnly: what.MetadataOnly}, nil
}

// sharedReader returns the objects of items to one list or watch.
type sharedReader struct {
	end          *verbs.Endpoint
	selector     registry.Selector
	metadataOnly bool
}

// share has the cache keep decoded objects, if this reader reads them, until the returned function is called.
func (r sharedReader) share() (release func()) {
	if r.metadataOnly || !r.sharesObjects() {
		return func() {}
	}
	return r.end.Registry.Cache.Share()
}

// sharesObjects reports whether the objects are those that the cache keeps decoded: not if they are in another version than stored.
func (r sharedReader) sharesObjects() bool {
	return r.end.Plain() && (r.end.Info.Converts == nil || !r.end.Info.Converts())
}

// object returns the object of an item, or only its metadata if the reader asked for that.
func (r sharedReader) object(it *cache.Item) (runtime.Object, error) {
	switch {
	case r.metadataOnly:
		return r.metadata(it)
	case !r.sharesObjects():
		return r.end.Served(it)
	default:
		obj, err := r.end.Registry.Cache.Object(it)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return obj, nil
	}
}

// metadata returns the metadata of an item. It is shared with the decoded object if the cache keeps that, and decoded by itself otherwise.
func (r sharedReader) metadata(it *cache.Item) (runtime.Object, error) {
	if c := r.end.Registry.Cache; c.Sharing() && r.sharesObjects() {
		obj, err := c.Object(it)
		if err != nil {
			return nil, apierrors.NewInternalError(err)
		}
		return &metav1.PartialObjectMetadata{ObjectMeta: *response.MetaOf(obj.(catalog.Object))}, nil
	}
	meta, err := codec.Metadata(it.Raw())
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: *meta}, nil
}

// bookmark returns an object of the watched type that has only a resourceVersion.
func (r sharedReader) bookmark(revision int64, initialEnd bool) runtime.Object {
	var obj catalog.Object
	if r.metadataOnly {
		obj = &metav1.PartialObjectMetadata{}
	} else {
		obj = r.end.Info.New().(catalog.Object)
	}
	obj.SetResourceVersion(strconv.FormatInt(revision, 10))
	if initialEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	return obj
}

// sharedWatch is a watch by a component of this process.
type sharedWatch struct {
	sharedReader
	watch  registry.StartedWatch
	opts   *metav1.ListOptions
	events chan watch.Event
	cancel context.CancelFunc
}

// ResultChan returns the channel of events, which is closed when the watch ends.
func (w *sharedWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop ends the watch.
func (w *sharedWatch) Stop() { w.cancel() }

// run sends the initial state and then the changes, until ctx ends.
func (w *sharedWatch) run(ctx context.Context) {
	if w.watch.SendInitial && !w.sendInitial(ctx) {
		return
	}
	changes := make([]*cache.Change, 0, response.WatchBatch)
	for {
		got, err := w.watch.Next(ctx, changes[:0])
		if ctx.Err() != nil || errors.Is(err, cache.ErrRemoved) {
			return
		}
		if err != nil {
			status := response.StatusOf(err)
			w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
			return
		}
		if got, err = w.watch.Convert(ctx, got); err != nil {
			if ctx.Err() == nil {
				status := response.StatusOf(err)
				w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
			}
			return
		}
		for i, c := range got {
			if kind, it := w.selector.Event(c); it != nil && !w.sendItem(ctx, watch.EventType(kind), it) {
				return
			}
			got[i] = nil // a change also holds the version before it
		}
	}
}

// sendInitial sends the initial state of the watch, and a bookmark when it is complete if the reader asked for one. It returns false if the watch has
// ended.
func (w *sharedWatch) sendInitial(ctx context.Context) bool {
	stopped := false
	var err error
	if w.watch.Initial.Items, err = w.end.Registry.CurrentAll(ctx, w.watch.Initial.Items, w.selector.Reading); err != nil {
		status := response.StatusOf(err)
		w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
		return false
	}
	err = w.watch.Initial.Each(ctx, func(it *cache.Item) error {
		if stopped = !w.sendItem(ctx, watch.Added, it); stopped {
			return context.Canceled
		}
		return nil
	})
	if stopped {
		return false
	}
	if err != nil {
		status := response.StatusOf(err)
		w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
		return false
	}
	revision := w.watch.Initial.Revision
	w.watch.Initial = registry.Page{}
	if w.opts.SendInitialEvents != nil && w.opts.AllowWatchBookmarks {
		return w.send(ctx, watch.Event{Type: watch.Bookmark, Object: w.bookmark(revision, true)})
	}
	return true
}

func (w *sharedWatch) sendItem(ctx context.Context, kind watch.EventType, it *cache.Item) bool {
	obj, err := w.object(it)
	if err != nil {
		status := response.StatusOf(err)
		w.send(ctx, watch.Event{Type: watch.Error, Object: &status})
		return false
	}
	return w.send(ctx, watch.Event{Type: kind, Object: obj})
}

func (w *sharedWatch) send(ctx context.Context, e watch.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}
