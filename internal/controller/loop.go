package controller

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Key names what a loop decides about: mostly an object.
type Key struct{ Namespace, Name string }

// String is the key as caches write it.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyOf is the key of an object.
func KeyOf(obj metav1.Object) Key { return Key{obj.GetNamespace(), obj.GetName()} }

// Loop is a control loop.
type Loop struct {
	Name string // as --controllers names it: "replicaset-controller"
	// Account is the service account in kube-system that it acts as, if that is not called like the loop.
	Account string
	// Source is what its events name as their source, if that is not called like the loop either.
	Source string
	// Queue is what metrics call its queue, if that is not called like the loop.
	Queue string
	// Workers is how many keys are looked at at a time; 5 if zero. One key is never looked at by two.
	Workers int
	Watch   []Watch
	// Look decides about a key, from the caches alone. It is called when a watched change concerns the key, again after what it decided
	// has been carried out and the caches know of it, and when Decision.Again says so.
	Look func(key Key, now time.Time) Decision
	// Run, if set, is for what is not about a key, until ctx ends: timers, graphs. It is started when the caches are filled.
	Run func(ctx context.Context, do Do)
}

// Do carries out actions outside of Look, and returns the first error.
type Do func(ctx context.Context, actions ...Action) error

// Watch is a resource whose changes concern a loop.
type Watch struct {
	Informer cache.SharedIndexInformer
	// Of is an empty object of the type that the informer holds. After the loop has written one, the key it was written for waits until
	// the informer knows. Nil is for informers that hold only metadata.
	Of Object
	// Keys says which keys a change concerns: before is nil for a new object, after for one that is gone, both are the same object when
	// the whole is gone through again. Nil means the object's own key.
	Keys func(before, after metav1.Object) []Key
}

// Decision is what to do about a key.
type Decision struct {
	// Actions are carried out in order. One that fails ends them.
	Actions []Action
	// Then decides what comes next, told what the actions returned (the error is nil if all went well). Without it an error has the key
	// looked at again after a while, longer each time.
	Then func(err error) Decision
	// Again has the key looked at after that time even if nothing changes.
	Again time.Duration
	// Err has the key looked at again after a while, longer each time.
	Err error
}

// Nothing is to do.
var Nothing = Decision{}
