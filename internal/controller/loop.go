package controller

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Key names what a loop reconciles: mostly an object.
type Key struct{ Namespace, Name string }

// String returns the key as caches write it: namespace/name, or name.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// KeyOf returns the key of an object.
func KeyOf(obj metav1.Object) Key { return Key{obj.GetNamespace(), obj.GetName()} }

// Loop is a control loop, as kube-controller-manager's controllers are.
type Loop struct {
	Name string // as --controllers names it: "replicaset-controller"
	// ServiceAccount is the service account in kube-system that the loop acts as; Name if empty.
	ServiceAccount string
	// EventSource is the source component of the loop's Events; Name if empty.
	EventSource string
	// QueueName is the name of the loop's work queue in metrics; Name if empty.
	QueueName string
	// Workers is how many keys are reconciled at a time; 5 if zero. A key is never reconciled twice at a time.
	Workers int
	Watch   []Watch
	// Reconcile decides what to do about a key, from the informers' caches alone. It is called when a watched change concerns the key, again
	// when the caches have observed what it wrote, and after Decision.RequeueAfter.
	Reconcile func(key Key, now time.Time) Decision
	// Run, if set, does what does not concern single keys, such as timers and graphs, until ctx ends. It starts when the caches have synced.
	Run func(ctx context.Context, do Do)
}

// Do carries out actions outside of Reconcile, and returns the first error.
type Do func(ctx context.Context, actions ...Action) error

// Watch is a resource whose changes concern a loop.
type Watch struct {
	Informer cache.SharedIndexInformer
	// Type is an empty object of the type that the informer holds. After the loop has written an object of that type, the key that it was
	// written for is not reconciled until the informer has observed the write. Nil is for informers that hold only metadata.
	Type Object
	// Keys returns the keys that a change concerns: before is nil for a new object, after is nil for a deleted one, and both are the same
	// object on a resync. A nil Keys means the key of the object itself.
	Keys func(before, after metav1.Object) []Key
}

// Decision is what to do about a key.
type Decision struct {
	// Actions are carried out in order, until one fails.
	Actions []Action
	// Then, if set, decides what comes next; err is what the actions returned, nil if all succeeded. Without it, an error requeues the key
	// with exponential back-off.
	Then func(err error) Decision
	// RequeueAfter, if not zero, requeues the key after that time even if nothing changes.
	RequeueAfter time.Duration
	// Err requeues the key with exponential back-off.
	Err error
}

// Nothing is the Decision to do nothing.
var Nothing = Decision{}
