package registry

import (
	"bytes"
	"context"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/codec"
	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/store"
)

// scanBounds bound how much is read from the store at a time.
type scanBounds struct {
	first, most int64 // objects of the first page, and of any page at most
	bytes       int   // approximate size of a page of an uncached resource
	held        int   // bytes of a list of an uncached resource that are kept in memory: the rest is read while the response is sent
}

// defaultScan starts with small pages for uncached resources, which grow up to a size in bytes.
var defaultScan = scanBounds{first: 500, most: 4000, bytes: 2 << 20, held: 2 << 20}

// scan reads the objects that a list selects from the store, in order, all at one revision. A copy of a scan continues where the original is.
type scan struct {
	r        *Registry
	selector Selector
	prefix   string // of the keys in the store that may be selected
	revision int64  // 0 for the newest, until the first page has been read
	from     string // key in the store at which the next page begins; empty for the first
	size     int64  // number of objects of the next page
	needles  [][]byte
}

func (r *Registry) newScan(s Selector, revision int64, from string) scan {
	sc := scan{r: r, selector: s, prefix: r.prefix + s.prefix(r.Info), revision: revision, size: r.scans.first}
	if from != "" {
		sc.from = r.prefix + from
	}
	if r.Info.Uncached {
		sc.needles = s.needles()
		if known := r.Cache.Stats(); known.Bytes > 0 {
			sc.size = max(1, min(sc.size, int64(r.scans.bytes)*int64(known.Objects)/known.Bytes))
		}
	}
	return sc
}

// next reads the next page. Its field More reports whether others follow.
func (s *scan) next(ctx context.Context) (store.ListResult, error) {
	got, err := s.r.store.List(ctx, s.prefix, store.ListOptions{Revision: s.revision, From: s.from, Limit: s.size, Uncounted: s.r.Info.Uncached})
	if err != nil || len(got.KVs) == 0 {
		return got, err
	}
	s.revision = got.Revision
	s.from = got.KVs[len(got.KVs)-1].Key + "\x00"
	if s.r.Info.Uncached {
		bytes := 1
		for _, kv := range got.KVs {
			bytes += len(kv.Value)
		}
		fit := int64(s.r.scans.bytes) * int64(len(got.KVs)) / int64(bytes)
		s.size = max(1, min(fit, 2*s.size, s.r.scans.most))
	}
	return got, nil
}

// remaining returns how many objects there are from index at of the page that was read last. For an uncached resource it is 0 unless everything is
// selected: only then remainingItemCount is sent.
func (s *scan) remaining(ctx context.Context, got store.ListResult, at int) (int64, error) {
	if !s.r.Info.Uncached {
		return got.Count - int64(at), nil
	}
	if !s.selector.All() {
		return 0, nil
	}
	from := s.from
	if at < len(got.KVs) {
		from = got.KVs[at].Key
	}
	rest, err := s.r.store.List(ctx, s.prefix, store.ListOptions{Revision: s.revision, From: from, Limit: 1})
	return rest.Count, err
}

// converted returns the items of objects that must be converted to see which are selected, all at once: nil for each that is not. It returns nil if
// none must be.
func (s *scan) converted(ctx context.Context, kvs []store.KV) ([]*cache.Item, error) {
	if !s.r.converts() || !s.selector.readsContent() {
		return nil, nil
	}
	items, candidates := make([]*cache.Item, len(kvs)), []*cache.Item(nil)
	for i, kv := range kvs {
		it, err := s.r.parseListed(ctx, strings.TrimPrefix(kv.Key, s.r.prefix), kv)
		if err != nil {
			return nil, err
		}
		if s.selector.mayMatch(it) {
			items[i], candidates = it, append(candidates, it)
		}
	}
	current, err := s.r.CurrentAll(ctx, candidates, s.selector.Reading)
	if err != nil {
		return nil, err
	}
	for i, it := range items {
		if it == nil {
			continue
		}
		if items[i], current = current[0], current[1:]; !s.selector.Matches(items[i]) {
			items[i] = nil
		}
	}
	return items, nil
}

// pick returns the item of the object at an index; nil if it is not selected. selected is what converted has returned.
func (s *scan) pick(ctx context.Context, selected []*cache.Item, i int, kv store.KV) (*cache.Item, error) {
	if selected != nil {
		return selected[i], nil
	}
	return s.item(ctx, kv)
}

// item returns the item of an object; nil if it is not selected.
func (s *scan) item(ctx context.Context, kv store.KV) (*cache.Item, error) {
	key := strings.TrimPrefix(kv.Key, s.r.prefix)
	if s.r.Info.Uncached && s.selector.All() {
		it, err := s.r.itemWithoutLabels(ctx, key, kv)
		if err == nil && !s.selector.sees(it) {
			return nil, nil
		}
		return it, err
	}
	if s.selector.Name != "" && key != s.selector.Name && !strings.HasSuffix(key, "/"+s.selector.Name) {
		return nil, nil
	}
	if len(s.needles) > 0 && codec.IsProtobuf(kv.Value) {
		for _, needle := range s.needles {
			if !bytes.Contains(kv.Value, needle) {
				return nil, nil
			}
		}
	}
	it, err := s.r.parseListed(ctx, key, kv)
	if err != nil || !s.selector.Matches(it) {
		return nil, err
	}
	return it, nil
}

// itemWithoutLabels returns an item without labels and fields, which costs less to parse: for lists without selectors.
func (r *Registry) itemWithoutLabels(ctx context.Context, key string, kv store.KV) (*cache.Item, error) {
	value, err := r.openListed(ctx, kv)
	if err != nil {
		return nil, err
	}
	it, err := r.Codec.Bare(value, kv.Revision)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	it.Key, it.Name = key, key
	if r.Info.Namespaced {
		it.Namespace, it.Name, _ = strings.Cut(key, "/")
	}
	return it, nil
}

// needles returns values that the stored bytes of every selected object contain: fields of an uncached resource are stored as they are. Searching for
// them costs a tenth of decoding the object.
func (s *Selector) needles() (all [][]byte) {
	for _, t := range s.fields {
		if t.index >= 0 && !t.not && t.value != "" {
			all = append(all, []byte(t.value))
		}
	}
	return all
}

// fromStore returns a page that is read from the store at a revision; at the newest if it is 0.
func (r *Registry) fromStore(ctx context.Context, l List, revision int64, from string) (Page, error) {
	if l.impossible || from == "" && l.selectsOne(r.Info) {
		return r.oneFromStore(ctx, l, revision)
	}
	page := Page{Revision: revision}
	s := r.newScan(l.Selector, revision, from)
	if l.Limit > 0 && r.Info.Uncached {
		s.size = min(s.size, l.Limit)
	}
	for held := 0; ; {
		got, err := s.next(ctx)
		if err != nil {
			return Page{}, r.historyFailure(err, l.Continue != "", from)
		}
		page.Revision = got.Revision
		selected, err := s.converted(ctx, got.KVs)
		if err != nil {
			return Page{}, err
		}
		for i, kv := range got.KVs {
			it, err := s.pick(ctx, selected, i, kv)
			if err != nil {
				return Page{}, err
			}
			if it == nil {
				continue
			}
			if page.full(l.Limit) {
				return r.endPage(ctx, page, l, &s, got, i, page.lastKey())
			}
			page.Items = append(page.Items, it)
			held += len(it.Raw())
		}
		if !got.More {
			return page, nil
		}
		if page.full(l.Limit) { // it is likely that one of the rest is selected
			return r.endPage(ctx, page, l, &s, got, len(got.KVs), page.lastKey())
		}
		if r.Info.Uncached && held > r.scans.held {
			return r.deferRest(ctx, page, l, s)
		}
	}
}

// endPage ends a page after the key last. What follows begins at index at of the page that was read last.
func (r *Registry) endPage(ctx context.Context, page Page, l List, s *scan, got store.ListResult, at int, last string) (Page, error) {
	remaining, err := s.remaining(ctx, got, at)
	if err != nil {
		return Page{}, r.historyFailure(err, l.Continue != "", last+"\x00")
	}
	page.endPage(l, remaining, last)
	return page, nil
}

// oneFromStore returns the page of a selector that selects one object at most.
func (r *Registry) oneFromStore(ctx context.Context, l List, revision int64) (Page, error) {
	key, _ := l.key(r.Info)
	if l.impossible {
		key = l.prefix(r.Info)
	}
	got, err := r.store.List(ctx, r.storeKey(key), store.ListOptions{Revision: revision, Limit: 1})
	if err != nil {
		return Page{}, r.historyFailure(err, l.Continue != "", "")
	}
	page := Page{Revision: got.Revision}
	if l.impossible || len(got.KVs) == 0 || got.KVs[0].Key != r.storeKey(key) {
		return page, nil
	}
	it, err := r.parseListed(ctx, key, got.KVs[0])
	if err == nil && l.readsContent() {
		it, err = r.currentAs(ctx, it, l.Reading)
	}
	if err == nil && l.Matches(it) {
		page.Items = []*cache.Item{it}
	}
	return page, err
}

// selectsOne reports whether the selector selects one object at most.
func (s *Selector) selectsOne(info *catalog.Info) bool {
	_, one := s.key(info)
	return one
}

// deferRest leaves what follows in the store, to be read while the page is sent. The continue token and remainingItemCount, which are sent first, are
// found out now.
func (r *Registry) deferRest(ctx context.Context, page Page, l List, s scan) (Page, error) {
	page.rest, page.restLimit = &s, 0
	if l.Limit == 0 {
		return page, nil
	}
	page.restLimit = l.Limit - int64(len(page.Items))
	var last string
	ahead := s
	for n := int64(0); ; {
		got, err := ahead.next(ctx)
		if err != nil {
			return Page{}, r.historyFailure(err, l.Continue != "", page.lastKey()+"\x00")
		}
		for i, kv := range got.KVs {
			it, err := ahead.item(ctx, kv)
			if err != nil {
				return Page{}, err
			}
			if it == nil {
				continue
			}
			if n == page.restLimit {
				return r.endPage(ctx, page, l, &ahead, got, i, last)
			}
			n, last = n+1, it.Key
		}
		if !got.More {
			return page, nil
		}
		if n == page.restLimit {
			return r.endPage(ctx, page, l, &ahead, got, len(got.KVs), last)
		}
	}
}

// Long reports whether a part of the page is to be read from the store while it is sent.
func (p *Page) Long() bool { return p.rest != nil }

// Each calls f for the objects of the page in order, until it returns an error. It may be called more than once.
func (p *Page) Each(ctx context.Context, f func(*cache.Item) error) error {
	for _, it := range p.Items {
		if err := f(it); err != nil {
			return err
		}
	}
	if p.rest == nil {
		return nil
	}
	s := *p.rest
	for n := int64(0); ; {
		got, err := s.next(ctx)
		if err != nil {
			return s.r.historyFailure(err, false, "")
		}
		for _, kv := range got.KVs {
			it, err := s.item(ctx, kv)
			if err != nil {
				return err
			}
			if it == nil {
				continue
			}
			if err := f(it); err != nil {
				return err
			}
			if n++; n == p.restLimit {
				return nil
			}
		}
		if !got.More {
			return nil
		}
	}
}

// Load reads what is still in the store into memory.
func (p *Page) Load(ctx context.Context) error {
	if p.rest == nil {
		return nil
	}
	var all []*cache.Item
	err := p.Each(ctx, func(it *cache.Item) error {
		all = append(all, it)
		return nil
	})
	if err != nil {
		return err
	}
	p.Items, p.rest = all, nil
	return nil
}

// getUncached is Get for an uncached resource.
func (r *Registry) getUncached(ctx context.Context, namespace, name, resourceVersion string) (*cache.Item, error) {
	it, err := r.readUncached(ctx, namespace, name, resourceVersion)
	if err == nil && it.Uninitialized {
		return nil, apierrors.NewNotFound(r.Resource(), name)
	}
	return it, err
}

// readUncached is GetUninitialized for an uncached resource.
func (r *Registry) readUncached(ctx context.Context, namespace, name, resourceVersion string) (*cache.Item, error) {
	if resourceVersion != "" { // what the store answers is the newest anyway
		if err := r.WaitFor(ctx, resourceVersion); err != nil {
			return nil, err
		}
	}
	it, err := r.read(ctx, r.Key(namespace, name))
	if err == nil && it == nil {
		err = apierrors.NewNotFound(r.Resource(), name)
	}
	return it, err
}

// complete sets, in place, what a watcher needs of changes of an uncached resource and the cache does not keep. It ignores the deadline of a single
// Next: the changes have already been taken from the cursor.
func (w *Watch) complete(changes []*cache.Change) ([]*cache.Change, error) {
	if !w.r.Info.Uncached {
		return changes, nil
	}
	mayCeaseToMatch := w.selector.readsContent()
	kept := changes[:0]
	for _, c := range changes {
		switch {
		case c.Type != cache.Deleted && !mayCeaseToMatch:
		case w.selector.Namespace != "" && c.Item.Namespace != w.selector.Namespace, w.selector.Name != "" && c.Item.Name != w.selector.Name:
			continue
		default:
			complete, err := w.r.Cache.Complete(w.ctx, c)
			if errors.Is(err, store.ErrCompacted) {
				return nil, expired(c.Item.Revision - 1)
			}
			if err != nil {
				if w.ctx.Err() != nil {
					return nil, w.ctx.Err()
				}
				return nil, w.r.failure(err)
			}
			if c = complete; c == nil {
				continue
			}
		}
		kept = append(kept, c)
	}
	return kept, nil
}
