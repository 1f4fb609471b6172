package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/cache"
	"skiff/internal/store"
)

// List are the options of a list.
type List struct {
	Selector
	Limit           int64
	Continue        string
	ResourceVersion string
	Match           metav1.ResourceVersionMatch
}

// Page is the result of a list: all selected objects, or up to Limit of them.
type Page struct {
	Items     []*cache.Item // all objects of the page, or the first of them if it is Long
	Revision  int64
	Continue  string
	Remaining *int64

	rest      *scan // reads the other objects of a Long page; nil if there are none
	restLimit int64 // how many objects rest is to read; 0 means all
}

// List returns the selected objects, or a page of them, all at one revision.
func (r *Registry) List(ctx context.Context, l List) (Page, error) {
	if _, err := ParseResourceVersion(l.ResourceVersion); err != nil {
		return Page{}, err
	}
	if l.Continue != "" {
		return r.next(ctx, l)
	}
	exact := l.Match == metav1.ResourceVersionMatchExact || l.Match == "" && l.Limit > 0 && l.ResourceVersion != "" && l.ResourceVersion != "0"
	if exact {
		revision, err := ParseResourceVersion(l.ResourceVersion)
		if err != nil {
			return Page{}, err
		}
		if err := r.waitForRevision(ctx, revision); err != nil {
			return Page{}, err
		}
		if !r.Info.Uncached {
			if snapshot := r.snapshot(l); snapshot.Revision == revision {
				return r.fromSnapshot(ctx, snapshot, l, "")
			}
		}
		return r.fromStore(ctx, l, revision, "")
	}
	if r.Info.Uncached {
		if l.ResourceVersion != "" { // what the store answers is the newest anyway
			if err := r.WaitFor(ctx, l.ResourceVersion); err != nil {
				return Page{}, err
			}
		}
		return r.fromStore(ctx, l, 0, "")
	}
	if err := r.WaitFor(ctx, l.ResourceVersion); err != nil {
		return Page{}, err
	}
	if l.ResourceVersion == "0" {
		l.Limit = 0 // as upstream's watch cache does
	}
	return r.fromSnapshot(ctx, r.snapshot(l), l, "")
}

// snapshot returns the state of the cache that a list reads.
func (r *Registry) snapshot(l List) cache.Snapshot {
	if l.Uninitialized {
		return r.Cache.SnapshotUninitialized()
	}
	return r.Cache.Snapshot()
}

// fromSnapshot returns a page of a snapshot of the cache, starting at the key from.
func (r *Registry) fromSnapshot(ctx context.Context, s cache.Snapshot, l List, from string) (Page, error) {
	page := Page{Revision: s.Revision}
	if l.impossible {
		return page, nil
	}
	if err := s.Unreadable(l.prefix(r.Info)); err != nil {
		return Page{}, apierrors.NewInternalError(err)
	}
	if r.converts() && l.readsContent() {
		return r.fromConverted(ctx, s, l, from)
	}
	if key, one := l.key(r.Info); one && from == "" {
		s.Ascend(key, "", func(it *cache.Item) bool {
			if it.Key == key && l.Matches(it) {
				page.Items = append(page.Items, it)
			}
			return false
		})
		return page, nil
	}
	all := l.All()
	if all && from == "" {
		page.Items = make([]*cache.Item, 0, expected(s.Len(), l))
	}
	var remaining int64
	s.Ascend(l.prefix(r.Info), from, func(it *cache.Item) bool {
		if !all && !l.Matches(it) {
			return true
		}
		if page.full(l.Limit) {
			remaining++
			return all // the rest is only counted if the page is to have remainingItemCount
		}
		page.Items = append(page.Items, it)
		return true
	})
	if remaining > 0 {
		page.endPage(l, remaining, page.lastKey())
	}
	return page, nil
}

// minConverted is how many objects are converted at least, to fill a page of those that are selected.
const minConverted = 500

// fromConverted is fromSnapshot for a selector that reads objects which must be converted first.
func (r *Registry) fromConverted(ctx context.Context, s cache.Snapshot, l List, from string) (Page, error) {
	page := Page{Revision: s.Revision}
	var candidates []*cache.Item
	s.Ascend(l.prefix(r.Info), from, func(it *cache.Item) bool {
		if l.mayMatch(it) {
			candidates = append(candidates, it)
		}
		return true
	})
	for len(candidates) > 0 {
		n := len(candidates)
		if l.Limit > 0 {
			n = min(n, max(minConverted, 2*int(min(l.Limit, minConverted))))
		}
		current, err := r.CurrentAll(ctx, candidates[:n], l.Reading)
		if err != nil {
			return Page{}, err
		}
		candidates = candidates[n:]
		for _, it := range current {
			if !l.Matches(it) {
				continue
			}
			if page.full(l.Limit) {
				page.endPage(l, 1, page.lastKey())
				return page, nil
			}
			page.Items = append(page.Items, it)
		}
	}
	return page, nil
}

// expected returns the capacity to allocate for a page.
func expected(objects int, l List) int {
	const most = 8192 // a namespace rarely has more objects; append grows the slice for those that do
	switch {
	case l.Limit > 0:
		return min(objects, int(l.Limit), most)
	case l.Namespace == "":
		return objects
	}
	return min(objects, most)
}

// next returns the page after a continue token, at the revision of the token.
func (r *Registry) next(ctx context.Context, l List) (Page, error) {
	if l.ResourceVersion != "" && l.ResourceVersion != "0" {
		return Page{}, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	}
	revision, from, err := decodeContinue(l.Continue)
	if err != nil {
		return Page{}, err
	}
	if !strings.HasPrefix(from, l.prefix(r.Info)) {
		return Page{}, apierrors.NewBadRequest(fmt.Sprintf("continue key is not valid: %q is not in this namespace", from))
	}
	if r.Info.Uncached {
		if err := r.waitForRevision(ctx, revision); err != nil {
			return Page{}, err
		}
		return r.fromStore(ctx, l, max(revision, 0), from) // a negative revision is explained below
	}
	if revision < 0 { // of the inconsistent token that a client gets with 410 Expired: it continues at the newest revision
		if err := r.failure(r.feed.Fresh(ctx)); err != nil {
			return Page{}, err
		}
		return r.fromSnapshot(ctx, r.snapshot(l), l, from)
	}
	if err := r.waitForRevision(ctx, revision); err != nil {
		return Page{}, err
	}
	if snapshot := r.snapshot(l); snapshot.Revision == revision {
		return r.fromSnapshot(ctx, snapshot, l, from)
	}
	return r.fromStore(ctx, l, revision, from)
}

// lastKey returns the key of the last object of the page that is in memory.
func (p *Page) lastKey() string { return p.Items[len(p.Items)-1].Key }

func (p *Page) full(limit int64) bool { return limit > 0 && int64(len(p.Items)) == limit }

// endPage sets the continue token for what follows the key last, and remainingItemCount if remaining was counted.
func (p *Page) endPage(l List, remaining int64, last string) {
	p.Continue = encodeContinue(p.Revision, last+"\x00")
	if l.All() {
		p.Remaining = &remaining
	}
}

const (
	expiredContinue = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
	expiredVersion  = "The resourceVersion for the provided list is too old."
)

// historyFailure returns the API error of a list at an earlier revision; 410 Expired if the store has compacted it.
func (r *Registry) historyFailure(err error, continued bool, from string) error {
	if errors.Is(err, store.ErrCompacted) {
		if !continued {
			return apierrors.NewResourceExpired(expiredVersion)
		}
		expired := apierrors.NewResourceExpired(expiredContinue)
		expired.ErrStatus.ListMeta.Continue = encodeContinue(-1, from)
		return expired
	}
	return r.failure(err)
}

// A continue token is base64 of a small JSON object, as upstream writes it.
type continueToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

func encodeContinue(revision int64, from string) string {
	token, err := json.Marshal(continueToken{"meta.k8s.io/v1", revision, from})
	if err != nil {
		panic(err) // strings and numbers can be marshaled
	}
	return base64.RawURLEncoding.EncodeToString(token)
}

func decodeContinue(s string) (revision int64, from string, err error) {
	invalid := func(what any) error {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", what))
	}
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return 0, "", invalid(err)
	}
	var token continueToken
	if err := json.Unmarshal(data, &token); err != nil {
		return 0, "", invalid(err)
	}
	switch {
	case token.APIVersion != "meta.k8s.io/v1":
		return 0, "", invalid(fmt.Sprintf("server does not recognize this encoded version %s", token.APIVersion))
	case token.ResourceVersion == 0:
		return 0, "", invalid("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
	case token.StartKey == "":
		return 0, "", invalid("encoded start key empty (version meta.k8s.io/v1)")
	case strings.Contains("/"+token.StartKey+"/", "/../"):
		return 0, "", invalid(token.StartKey)
	}
	return token.ResourceVersion, token.StartKey, nil
}

// ValidateListOptions refuses combinations of list options that have no meaning.
func ValidateListOptions(opts *metav1.ListOptions, watch bool) error {
	asked := &internalversion.ListOptions{Watch: watch, ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch,
		SendInitialEvents: opts.SendInitialEvents, Continue: opts.Continue}
	internalversion.SetListOptionsDefaults(asked, true)
	if errs := validation.ValidateListOptions(asked, true); len(errs) > 0 {
		return apierrors.NewInvalid(listOptions, "", errs)
	}
	return nil
}

var listOptions = schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}
