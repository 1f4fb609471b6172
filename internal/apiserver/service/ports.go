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

// ports are the node ports: a bit for each port of the range, in one object of the store. Every server keeps a copy and changes the
// object on condition that it is still the one it knows.
type ports struct {
	store   store.Store
	key     string
	codec   *codec.Stored
	valid   utilnet.PortRange
	static  int // how many of the lowest are left to those who ask for a certain port
	inUse   func(context.Context) (map[int32]bool, error)
	failure func(error) error // turns an error of the store into one of the API

	// turn holds a token while somebody in this process is at work on the object: two at once would only make one of them try again.
	// What follows belongs to who has the token.
	turn     chan struct{}
	revision int64 // of the object that taken is the content of; 0 if that is not known
	taken    *big.Int
	leaks    map[int32]time.Time // since when repairs have found a port taken, but used by no service
}

// rangeAllocation is the kind of the object. It is served nowhere.
var rangeAllocation = catalog.Resource[corev1.RangeAllocation]{Version: "v1", Kind: "RangeAllocation", Plural: "rangeallocations"}

func newPorts(o Options, valid utilnet.PortRange, inUse func(context.Context) (map[int32]bool, error)) *ports {
	return &ports{store: o.Store, key: o.Prefix + "/ranges/servicenodeports", codec: codec.NewStored(rangeAllocation.Info(), o.AsJSON),
		valid: valid, static: staticPorts(valid.Size), inUse: inUse, failure: o.Services.Failure, turn: make(chan struct{}, 1), leaks: map[int32]time.Time{}}
}

// staticPorts is how many ports of a range that large are left to those who ask for a certain one: a part of 32, within bounds.
func staticPorts(size int) int {
	const least, most, share = 16, 128, 32
	if size <= least {
		return 0
	}
	return min(max(least, size/share), most)
}

// The refusals. Their texts are upstream's.
var (
	errPortTaken = errors.New("provided port is already allocated")
	errPortsFull = errors.New("range is full")
)

func (p *ports) notInRange() error {
	return fmt.Errorf("provided port is not in the valid range. The range of valid ports is %s", p.valid.String())
}

// pool is a core.PortPool that remembers what happened.
type pool interface {
	core.PortPool
	// result returns what was taken, what is to be released once the service is stored, and the last refusal.
	result() (taken, released []int32, refusal error)
}

// allocate lets a function take ports and writes the outcome. The function may be called several times, the last time counts.
func (p *ports) allocate(ctx context.Context, dryRun bool, f func(pool) error) error {
	if dryRun {
		bits, err := p.peek(ctx)
		if err != nil {
			return err
		}
		return f(&pretendedPool{p: p, bits: bits})
	}
	if idle(f) {
		return nil
	}
	return p.change(ctx, func(bits *big.Int) error { return f(&realPool{p: p, bits: bits}) })
}

// idle reports whether a function takes no port, so that it need not wait for its turn.
func idle(f func(pool) error) bool {
	p := &idlePool{}
	return f(p) == nil && !p.asked
}

// release gives ports back.
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

// maxPortTries bounds how often a change is tried again because another server came first.
const maxPortTries = 100

// change lets edit set and clear bits and writes them. edit is called again if the bits turn out to be old.
func (p *ports) change(ctx context.Context, edit func(bits *big.Int) error) error {
	done, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	fresh := false
	for range maxPortTries {
		if p.revision == 0 {
			if err := p.load(ctx); err != nil {
				return err
			}
			fresh = true
		}
		next := new(big.Int).Set(p.taken)
		if err := edit(next); err != nil {
			if fresh {
				return err
			}
			p.revision = 0 // what this process remembers says no: only the store's word counts
			continue
		}
		if next.Cmp(p.taken) == 0 {
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

// begin waits for this caller's turn, which ends with done.
func (p *ports) begin(ctx context.Context) (done func(), err error) {
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn }, nil
	case <-ctx.Done():
		return nil, p.failure(ctx.Err())
	}
}

// put writes the object if it is still the one known. Otherwise raced is true and the one that is there is known.
func (p *ports) put(ctx context.Context, next *big.Int) (raced bool, err error) {
	value, _, err := p.codec.Encode(&corev1.RangeAllocation{Range: p.valid.String(), Data: next.Bytes()})
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	revision, err := p.store.Put(ctx, p.key, value, store.PutOptions{IfRevision: p.revision})
	var conflict *store.ConflictError
	switch {
	case err == nil:
		p.revision, p.taken = revision, next
		return false, nil
	case !errors.As(err, &conflict):
		p.revision = 0 // it may have happened
		return false, p.failure(err)
	case conflict.Current == nil:
		p.revision = 0
		return true, nil
	}
	return true, p.read(*conflict.Current)
}

// load learns the object, making it if there is none.
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
		if raced, err := p.put(ctx, p.bitsOf(used)); err != nil || !raced {
			return err
		}
	}
	return apierrors.NewServerTimeout(corev1.Resource("services"), "find node ports for", 1)
}

func (p *ports) read(kv store.KV) error {
	bits, err := p.decode(kv.Value)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("%s cannot be read: %w", p.key, err))
	}
	p.revision, p.taken = kv.Revision, bits
	return nil
}

// decode reads the object. It may be of another range, if the server was started with another one before.
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

// peek returns the bits as far as they are known, for answers that bind nobody.
func (p *ports) peek(ctx context.Context) (*big.Int, error) {
	done, err := p.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if p.revision == 0 {
		if err := p.load(ctx); err != nil {
			return nil, err
		}
	}
	return p.taken, nil // it is replaced, never changed
}

// find returns the position of a free port: any of the upper ones, else any of those that are left to who asks for them.
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

// record is what a pool remembers.
type record struct {
	taken, released []int32
	refusal         error
}

func (r *record) result() ([]int32, []int32, error) { return r.taken, r.released, r.refusal }

func (r *record) Release(port int32) { r.released = append(r.released, port) }

func (r *record) refuse(err error) error {
	r.refusal = err
	return err
}

// realPool takes ports by setting bits that are about to be written.
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
	o.taken = append(o.taken, port)
	return nil
}

func (o *realPool) TakeAny() (int32, error) {
	at, ok := o.p.find(o.bits)
	if !ok {
		return 0, o.refuse(errPortsFull)
	}
	o.bits.SetBit(o.bits, at, 1)
	port := int32(o.p.valid.Base + at)
	o.taken = append(o.taken, port)
	return port, nil
}

// pretendedPool is for dry runs. Like upstream's it looks whether a port that is asked for is free, but not whether there is such a
// port, and answers with numbers beyond all node ports for those to be chosen.
type pretendedPool struct {
	record
	p    *ports
	bits *big.Int
}

func (o *pretendedPool) Take(port int32) error {
	known := o.p.valid.Contains(int(port)) && o.bits.Bit(int(port)-o.p.valid.Base) == 1
	if known || slices.Contains(o.taken, port) {
		return o.refuse(errPortTaken)
	}
	o.taken = append(o.taken, port)
	return nil
}

func (o *pretendedPool) TakeAny() (int32, error) {
	port := int32(32768)
	if len(o.taken) > 0 {
		port = slices.Max(o.taken)
	}
	o.taken = append(o.taken, port+1)
	return port + 1, nil
}

// idlePool has nothing and notices whether anybody minds.
type idlePool struct {
	record
	asked bool
}

var errAsked = errors.New("a port is needed")

func (o *idlePool) Take(int32) error { o.asked = true; return errAsked }

func (o *idlePool) TakeAny() (int32, error) { o.asked = true; return 0, errAsked }
