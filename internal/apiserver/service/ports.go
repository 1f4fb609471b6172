package service

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog"
	"skiff/internal/catalog/core"
	"skiff/internal/store"
)

// ports allocates node ports. The allocated ports are a bitmap in one object of the store. Every server keeps a copy and updates the object
// by compare-and-swap.
type ports struct {
	store   store.Store
	key     string
	codec   *codec.Stored
	valid   utilnet.PortRange
	static  int                                           // number of the lowest ports, which are reserved for services that request a specific port
	inUse   func(context.Context) (map[int32]bool, error) // returns the node ports of all services
	failure func(error) error                             // turns an error of the store into one of the API

	// lock serializes the changes of this process, which would otherwise conflict with each other. It is held while it contains a value,
	// and protects the fields below.
	lock      chan struct{}
	revision  int64 // revision of the stored object that allocated is the content of; 0 if unknown
	allocated *big.Int
	leaks     map[int32]time.Time // since when repairs have found a port allocated but used by no service
}

// rangeAllocation is the kind of the stored object, which no endpoint serves.
var rangeAllocation = catalog.Resource[corev1.RangeAllocation]{Version: "v1", Kind: "RangeAllocation", Plural: "rangeallocations"}

func newPorts(o Options, valid utilnet.PortRange, inUse func(context.Context) (map[int32]bool, error)) *ports {
	return &ports{store: o.Store, key: o.Prefix + "/ranges/servicenodeports", codec: codec.NewStored(rangeAllocation.Info(), o.AsJSON),
		valid: valid, static: staticPorts(valid.Size), inUse: inUse, failure: o.Services.Failure, lock: make(chan struct{}, 1), leaks: map[int32]time.Time{}}
}

// staticPorts returns the number of ports of a range that are reserved for services that request a specific one: a thirty-second, within bounds.
func staticPorts(size int) int {
	const least, most, share = 16, 128, 32
	if size <= least {
		return 0
	}
	return min(max(least, size/share), most)
}

// The reasons why a node port is not allocated, with upstream's texts.
var (
	errPortTaken = errors.New("provided port is already allocated")
	errPortsFull = errors.New("range is full")
)

func (p *ports) notInRange() error {
	return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.valid.String())
}

// pool is a core.PortPool that records what was allocated.
type pool interface {
	core.PortPool
	// result returns the allocated ports, those to release once the service is stored, and the last refusal.
	result() (allocated, released []int32, refusal error)
}

// allocate calls f to allocate ports and stores the result. f may be called several times; the last call counts.
func (p *ports) allocate(ctx context.Context, dryRun bool, f func(pool) error) error {
	if dryRun {
		bits, err := p.peek(ctx)
		if err != nil {
			return err
		}
		return f(&dryRunPool{p: p, bits: bits})
	}
	if needsNone(f) {
		return nil
	}
	return p.change(ctx, func(bits *big.Int) error { return f(&realPool{p: p, bits: bits}) })
}

// needsNone reports whether f allocates no port, so that it need not wait for the lock.
func needsNone(f func(pool) error) bool {
	p := &emptyPool{}
	return f(p) == nil && !p.portNeeded
}

// release releases ports.
func (p *ports) release(ctx context.Context, ports []int32) error {
	return p.change(ctx, func(bits *big.Int) error {
		for _, port := range ports {
			if p.valid.Contains(int(port)) {
				bits.SetBit(bits, int(port)-p.valid.Base, 0)
			}
		}
		return nil
	})
}

// maxPortTries bounds the attempts of a change that conflicts with other servers.
const maxPortTries = 100

// change calls edit to set and clear bits, and stores them. edit is called again if the bits turn out to be outdated.
func (p *ports) change(ctx context.Context, edit func(bits *big.Int) error) error {
	unlock, err := p.acquire(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	fresh := false
	for range maxPortTries {
		if p.revision == 0 {
			if err := p.load(ctx); err != nil {
				return err
			}
			fresh = true
		}
		next := new(big.Int).Set(p.allocated)
		if err := edit(next); err != nil {
			if fresh {
				return err
			}
			p.revision = 0 // the copy of this process may be outdated: only the stored object can refuse
			continue
		}
		if next.Cmp(p.allocated) == 0 {
			if fresh {
				return nil
			}
			p.revision = 0
			continue
		}
		if fresh, err = p.put(ctx, next); err != nil {
			return err
		}
		if !fresh {
			return nil
		}
	}
	return apierrors.NewServerTimeout(corev1.Resource("services"), "allocate node ports for", 1)
}

// acquire acquires the lock; unlock releases it.
func (p *ports) acquire(ctx context.Context) (unlock func(), err error) {
	select {
	case p.lock <- struct{}{}:
		return func() { <-p.lock }, nil
	case <-ctx.Done():
		return nil, p.failure(ctx.Err())
	}
}

// put stores the bits if the object is unchanged. Otherwise conflicted is true, and the current object is read if there is one.
func (p *ports) put(ctx context.Context, next *big.Int) (conflicted bool, err error) {
	value, _, err := p.codec.Encode(&corev1.RangeAllocation{Range: p.valid.String(), Data: next.Bytes()})
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	revision, err := p.store.Put(ctx, p.key, value, store.PutOptions{IfRevision: p.revision})
	var conflict *store.ConflictError
	switch {
	case err == nil:
		p.revision, p.allocated = revision, next
		return false, nil
	case !errors.As(err, &conflict):
		p.revision = 0 // the write may have succeeded
		return false, p.failure(err)
	case conflict.Current == nil:
		p.revision = 0
		return true, nil
	}
	return true, p.read(*conflict.Current)
}

// load reads the object, and creates it if it does not exist.
func (p *ports) load(ctx context.Context) error {
	for range maxPortTries {
		kv, _, err := p.store.Get(ctx, p.key)
		if err == nil {
			return p.read(kv)
		}
		if !errors.Is(err, store.ErrNotFound) {
			return p.failure(err)
		}
		used, err := p.inUse(ctx)
		if err != nil {
			return err
		}
		if conflicted, err := p.put(ctx, p.bitsOf(used)); err != nil || !conflicted {
			return err
		}
	}
	return apierrors.NewServerTimeout(corev1.Resource("services"), "find node ports for", 1)
}

func (p *ports) read(kv store.KV) error {
	bits, err := p.decode(kv.Value)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("failed to decode %s: %w", p.key, err))
	}
	p.revision, p.allocated = kv.Revision, bits
	return nil
}

// decode returns the bits of the object, whose range may differ if the server was started with another one before.
func (p *ports) decode(value []byte) (*big.Int, error) {
	it, err := p.codec.Parse(value, 0)
	if err != nil {
		return nil, err
	}
	obj, err := p.codec.Object(it.Raw())
	if err != nil {
		return nil, err
	}
	stored := obj.(*corev1.RangeAllocation)
	bits := new(big.Int).SetBytes(stored.Data)
	if stored.Range == p.valid.String() {
		return bits, nil
	}
	other, err := utilnet.ParsePortRange(stored.Range)
	if err != nil {
		return nil, err
	}
	moved := new(big.Int)
	for i := range bits.BitLen() {
		if port := other.Base + i; bits.Bit(i) == 1 && p.valid.Contains(port) {
			moved.SetBit(moved, port-p.valid.Base, 1)
		}
	}
	return moved, nil
}

func (p *ports) bitsOf(used map[int32]bool) *big.Int {
	bits := new(big.Int)
	for port := range used {
		if p.valid.Contains(int(port)) {
			bits.SetBit(bits, int(port)-p.valid.Base, 1)
		}
	}
	return bits
}

// peek returns the bits, possibly outdated, for dry runs.
func (p *ports) peek(ctx context.Context) (*big.Int, error) {
	unlock, err := p.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p.revision == 0 {
		if err := p.load(ctx); err != nil {
			return nil, err
		}
	}
	return p.allocated, nil // it is replaced, never modified
}

// find returns the position of a free port: a random one of the upper ones, or else of the reserved ones.
func (p *ports) find(bits *big.Int) (int, bool) {
	search := func(from, to int) (int, bool) {
		if from == to {
			return 0, false
		}
		start := rand.IntN(to - from)
		for i := range to - from {
			if at := from + (start+i)%(to-from); bits.Bit(at) == 0 {
				return at, true
			}
		}
		return 0, false
	}
	if at, ok := search(p.static, p.valid.Size); ok {
		return at, true
	}
	return search(0, p.static)
}

// record is what a pool records.
type record struct {
	allocated, released []int32
	refusal             error
}

func (r *record) result() ([]int32, []int32, error) { return r.allocated, r.released, r.refusal }

func (r *record) Release(port int32) { r.released = append(r.released, port) }

func (r *record) refuse(err error) error {
	r.refusal = err
	return err
}

// realPool allocates ports by setting bits that are then stored.
type realPool struct {
	record
	p    *ports
	bits *big.Int
}

func (o *realPool) Take(port int32) error {
	if !o.p.valid.Contains(int(port)) {
		return o.refuse(o.p.notInRange())
	}
	at := int(port) - o.p.valid.Base
	if o.bits.Bit(at) == 1 {
		return o.refuse(errPortTaken)
	}
	o.bits.SetBit(o.bits, at, 1)
	o.allocated = append(o.allocated, port)
	return nil
}

func (o *realPool) TakeAny() (int32, error) {
	at, ok := o.p.find(o.bits)
	if !ok {
		return 0, o.refuse(errPortsFull)
	}
	o.bits.SetBit(o.bits, at, 1)
	port := int32(o.p.valid.Base + at)
	o.allocated = append(o.allocated, port)
	return port, nil
}

// dryRunPool is the pool of dry runs. Like upstream's it checks whether a requested port is free, but not whether it is in the range, and
// returns numbers above all node ports for those to be chosen.
type dryRunPool struct {
	record
	p    *ports
	bits *big.Int
}

func (o *dryRunPool) Take(port int32) error {
	inUse := o.p.valid.Contains(int(port)) && o.bits.Bit(int(port)-o.p.valid.Base) == 1
	if inUse || slices.Contains(o.allocated, port) {
		return o.refuse(errPortTaken)
	}
	o.allocated = append(o.allocated, port)
	return nil
}

func (o *dryRunPool) TakeAny() (int32, error) {
	port := int32(32768)
	if len(o.allocated) > 0 {
		port = slices.Max(o.allocated)
	}
	o.allocated = append(o.allocated, port+1)
	return port + 1, nil
}

// emptyPool has no ports and records whether one is needed.
type emptyPool struct {
	record
	portNeeded bool
}

var errPortNeeded = errors.New("a port is needed")

func (o *emptyPool) Take(int32) error { o.portNeeded = true; return errPortNeeded }

func (o *emptyPool) TakeAny() (int32, error) { o.portNeeded = true; return 0, errPortNeeded }
