package schema

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
)

// place is where in an object a walk is. Paths and the comparison with the old object are made from it only when a rule does not hold.
type place struct {
	parent *place // nil at the root
	walk   *ruleWalk
	kind   placeKind
	name   string
	index  int

	paired bool // pair was called
	old    pairing
}

type placeKind int

const (
	inField placeKind = iota
	inKey
	inItem
	inAllOf // the same value, with the rules of another schema
)

// path returns the field path, nil at the root.
func (p *place) path() *field.Path {
	if p.parent == nil {
		return nil
	}
	above := p.parent.path()
	switch p.kind {
	case inField:
		return above.Child(p.name)
	case inKey:
		return above.Key(p.name)
	case inItem:
		return above.Index(p.index)
	}
	return above
}

// pairing is what a value is compared with to know whether it changed.
type pairing struct {
	own     *common.CorrelatedObject // the value and its old value; nil if they cannot be correlated
	nearest *common.CorrelatedObject // of the nearest value above it that has an old value
}

// unchanged says whether the value, or if it has no old value the nearest above it that has one, is what it was before the update.
func (p *place) unchanged() bool {
	pair := p.pair()
	if pair.own != nil {
		return pair.own.CachedDeepEqual()
	}
	return pair.nearest.CachedDeepEqual()
}

func (p *place) pair() pairing {
	if !p.paired {
		p.old, p.paired = p.newPairing(), true
	}
	return p.old
}

func (p *place) newPairing() pairing {
	if p.parent == nil {
		ch := p.walk.change
		if ch.old == nil {
			return pairing{}
		}
		return pairing{own: common.NewCorrelatedObject(ch.obj, ch.old, p.walk.values)}
	}
	above := p.parent.pair()
	switch {
	case p.kind == inAllOf:
		return pairing{nearest: above.nearest}
	case above.own == nil:
		return above
	case p.kind == inItem:
		return pairing{own: above.own.Index(p.index), nearest: above.own}
	case above.nearest == nil && (p.name == "apiVersion" || p.name == "kind"):
		return pairing{} // old and new object have been converted to the same version
	}
	return pairing{own: above.own.Key(p.name), nearest: above.own}
}
