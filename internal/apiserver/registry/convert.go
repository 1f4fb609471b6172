package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/cache"
	"skiff/internal/catalog"
	"skiff/internal/catalog/initializers"
)

// Reading says what a reader gets of objects that are stored in another version than it reads, if a webhook converts between the versions.
type Reading int

const (
	Converted         Reading = iota // the converted object; the read fails if the webhook does
	ConvertedMetadata                // the metadata of the converted object, or the stored metadata if the webhook fails
	StoredMetadata                   // the stored metadata, from which a webhook can change only labels and annotations
)

const (
	// metadataTimeout is how long a read waits for converted metadata, for which the stored metadata will do.
	metadataTimeout = 5 * time.Second
	// metadataRetry is how long such reads do not ask a webhook again that has failed.
	metadataRetry = 10 * time.Second
)

// maxConversions bounds the versions in which an item is kept, beside that in which it is stored.
const maxConversions = 8

// converts reports whether the content of objects differs between the versions of the kind.
func (r *Registry) converts() bool { return r.Info.Converts != nil && r.Info.Converts() }

// Object returns the object of an item, in the version of the registry, for the caller to own.
func (r *Registry) Object(ctx context.Context, it *cache.Item) (catalog.Object, error) {
	if !r.converts() {
		return r.Decode(it)
	}
	current, err := r.Current(ctx, it)
	if err != nil {
		return nil, err
	}
	return r.Decode(current)
}

// Decode is Object for an item that Current has returned, and for kinds that are not converted.
func (r *Registry) Decode(it *cache.Item) (catalog.Object, error) {
	if r.converts() {
		obj := r.Info.New().(catalog.Object) // it has its defaults: those of the version in which it is stored
		if err := obj.Unmarshal(it.Raw()); err != nil {
			return nil, r.undecodable(it, err)
		}
		return obj, nil
	}
	if r.Info.FromNormalized != nil {
		if epoch := r.Info.Epoch(); it.Normalized(epoch) == it {
			obj, err := r.Info.FromNormalized(it.Raw(), epoch)
			if err != nil {
				return nil, r.undecodable(it, err)
			}
			return obj, nil
		}
	}
	obj, err := r.Codec.Object(it.Raw())
	if err != nil {
		return nil, r.undecodable(it, err)
	}
	return obj.(catalog.Object), nil
}

func (r *Registry) undecodable(it *cache.Item, err error) error {
	return apierrors.NewInternalError(fmt.Errorf("stored %s %s cannot be decoded: %w", r.Resource(), it.Key, err))
}

// Current returns an item as today's schema of the kind has it, in the version of the registry: one whose schema has changed since it was stored has
// defaults that were added and lacks fields that were removed, and one that is stored in another version is converted.
func (r *Registry) Current(ctx context.Context, it *cache.Item) (*cache.Item, error) {
	if r.Info.Normalized == nil {
		return it, nil
	}
	if current := it.Normalized(r.Info.Epoch()); current != nil {
		return current, nil
	}
	items, err := r.currentAll(ctx, []*cache.Item{it})
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// CurrentAll returns items as Current does, all that must be converted at once; the items themselves if the kind is not converted.
func (r *Registry) CurrentAll(ctx context.Context, items []*cache.Item, as Reading) ([]*cache.Item, error) {
	if as == StoredMetadata || !r.converts() {
		return items, nil
	}
	if as == Converted {
		return r.currentAll(ctx, items)
	}
	if r.conversions.failing() {
		return items, nil
	}
	soon, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	current, err := r.currentAll(soon, items)
	if err != nil && ctx.Err() == nil && (soon.Err() != nil || errors.As(err, new(*catalog.ConversionError))) {
		r.conversions.failed()
		return items, nil
	}
	return current, err
}

// currentAs is CurrentAll for one item.
func (r *Registry) currentAs(ctx context.Context, it *cache.Item, as Reading) (*cache.Item, error) {
	items, err := r.CurrentAll(ctx, []*cache.Item{it}, as)
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// currentAll returns the current items of items. What other goroutines are converting already is waited for, and not converted again.
func (r *Registry) currentAll(ctx context.Context, items []*cache.Item) ([]*cache.Item, error) {
	for {
		epoch := r.Info.Epoch()
		var missing []*cache.Item
		for _, it := range items {
			if it.Normalized(epoch) == nil {
				missing = append(missing, it)
			}
		}
		if len(missing) == 0 {
			return pick(items, func(it *cache.Item) *cache.Item { return it.Normalized(epoch) })
		}
		if !r.converts() {
			made, err := r.normalize(ctx, missing)
			if err != nil {
				return nil, err
			}
			return pick(items, func(it *cache.Item) *cache.Item {
				if current := it.Normalized(epoch); current != nil {
					return current
				}
				return made[it]
			})
		}
		own, others := r.conversions.begin(missing)
		var made map[*cache.Item]*cache.Item
		if own != nil {
			var err error
			made, err = r.normalize(ctx, own.items)
			r.conversions.end(own, err, ctx.Err() != nil)
			if err != nil {
				return nil, err
			}
		}
		if len(others) == 0 {
			// The epoch may be another one by now: what was made is newer then.
			return pick(items, func(it *cache.Item) *cache.Item {
				if current := made[it]; current != nil {
					return current
				}
				return it.Normalized(epoch)
			})
		}
		for _, other := range others {
			if err := other.wait(ctx); err != nil {
				return nil, err
			}
		}
	}
}

// pick returns what a function makes of items.
func pick(items []*cache.Item, of func(*cache.Item) *cache.Item) ([]*cache.Item, error) {
	picked := make([]*cache.Item, len(items))
	for i, it := range items {
		if picked[i] = of(it); picked[i] == nil {
			return nil, apierrors.NewInternalError(fmt.Errorf("%s has changed while it was read", it.Key))
		}
	}
	return picked, nil
}

// normalize makes the current items of items, and keeps them with the items.
func (r *Registry) normalize(ctx context.Context, items []*cache.Item) (map[*cache.Item]*cache.Item, error) {
	messages := make([][]byte, len(items))
	for i, it := range items {
		messages[i] = it.Message()
	}
	epoch, normalized, err := r.Info.Normalized(ctx, messages)
	if err != nil {
		if errors.As(err, new(*catalog.ConversionError)) {
			return nil, err
		}
		return nil, r.undecodable(items[0], err)
	}
	made := make(map[*cache.Item]*cache.Item, len(items))
	converts := r.converts()
	for i, it := range items {
		if it.Uninitialized { // what is made of a message has only what the Go type has
			in, err := initializers.FromMessage(it.Message())
			if err != nil {
				return nil, r.undecodable(it, err)
			}
			normalized[i] = append(normalized[i], in.Suffix()...)
		}
		if !converts {
			made[it] = it.SetNormalized(epoch, normalized[i])
			continue
		}
		if made[it], err = r.keep(it, epoch, normalized[i]); err != nil {
			return nil, r.undecodable(it, err)
		}
	}
	return made, nil
}

// keep keeps a converted message with the item that it was made of. Its labels and fields are those of its version.
func (r *Registry) keep(it *cache.Item, epoch uint64, message []byte) (*cache.Item, error) {
	if bytes.Equal(message, it.Message()) {
		return it.SetNormalized(epoch, message), nil
	}
	obj := r.Info.New().(catalog.Object)
	if err := obj.Unmarshal(message); err != nil {
		return nil, err
	}
	converted := r.item(it.Key, obj, message, it.Revision)
	return it.SetConverted(epoch, converted, maxConversions), nil
}

// CurrentChanges returns changes with the items that CurrentAll returns: those before the changes too if prev is set. It returns the changes themselves if
// nothing must be converted.
func (r *Registry) CurrentChanges(ctx context.Context, changes []*cache.Change, prev bool, as Reading) ([]*cache.Change, error) {
	if as == StoredMetadata || !r.converts() {
		return changes, nil
	}
	var items []*cache.Item
	for _, c := range changes {
		switch {
		case c.Type == cache.Deleted && c.Prev != nil:
			items = append(items, c.Prev) // which has the same content, and may be converted already
		case prev && c.Prev != nil:
			items = append(items, c.Item, c.Prev)
		default:
			items = append(items, c.Item)
		}
	}
	current, err := r.CurrentAll(ctx, items, as)
	if err != nil {
		return nil, err
	}
	converted := make([]*cache.Change, len(changes))
	next := func() (it *cache.Item) {
		it, current = current[0], current[1:]
		return it
	}
	for i, c := range changes {
		made := &cache.Change{Type: c.Type, Prev: c.Prev}
		switch {
		case c.Type == cache.Deleted && c.Prev != nil:
			made.Prev = next()
			if made.Item = c.Item; made.Prev != c.Prev {
				made.Item = made.Prev.At(c.Item.Revision)
			}
		case prev && c.Prev != nil:
			made.Item, made.Prev = next(), next()
		default:
			made.Item = next()
		}
		if converted[i] = made; made.Item == c.Item {
			converted[i] = c // whose encodings are kept
			if made.Prev != c.Prev {
				converted[i] = made
			}
		}
	}
	return converted, nil
}

// conversions are the calls under way by which items are converted, so that the watchers of a version do not all convert the same items.
type conversions struct {
	mu         sync.Mutex
	items      map[*cache.Item]*conversion
	lastFailed time.Time // when a read of metadata did without
}

// failing reports whether a conversion for metadata has failed lately.
func (c *conversions) failing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.lastFailed.IsZero() && time.Since(c.lastFailed) < metadataRetry
}

// failed remembers that a conversion for metadata has failed.
func (c *conversions) failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastFailed = time.Now()
}

// conversion is one call for some items.
type conversion struct {
	items []*cache.Item
	done  chan struct{}

	// The following are valid when done is closed.
	err    error
	gaveUp bool // whether it failed because its goroutine had no time left
}

// begin returns a new conversion of those items that nobody converts yet, nil if there are none, and the conversions of the others.
func (c *conversions) begin(items []*cache.Item) (own *conversion, others []*conversion) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[*conversion]bool{}
	for _, it := range items {
		other := c.items[it]
		switch {
		case other == nil:
			if own == nil {
				own = &conversion{done: make(chan struct{})}
				seen[own] = true
			}
			if c.items == nil {
				c.items = map[*cache.Item]*conversion{}
			}
			c.items[it] = own
			own.items = append(own.items, it)
		case !seen[other]:
			seen[other] = true
			others = append(others, other)
		}
	}
	return own, others
}

// end ends a conversion with its result.
func (c *conversions) end(own *conversion, err error, gaveUp bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, it := range own.items {
		delete(c.items, it)
	}
	own.err, own.gaveUp = err, gaveUp
	close(own.done)
}

// wait waits for the conversion of another goroutine. Its error counts unless that goroutine only gave up.
func (c *conversion) wait(ctx context.Context) error {
	select {
	case <-c.done:
	case <-ctx.Done():
		return Timeout()
	}
	if c.gaveUp {
		return nil
	}
	return c.err
}
