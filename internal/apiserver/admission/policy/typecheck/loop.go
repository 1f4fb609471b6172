package typecheck

import (
	"context"
	"log/slog"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

var policies = admissionregistrationv1.Resource("validatingadmissionpolicies")

// retryAfter is how long a policy whose status could not be written waits.
const retryAfter = time.Second

// Loop checks policies whose generation was not checked yet.
type Loop struct {
	store   objects.Store
	schemas Schemas
	log     *slog.Logger

	mu   sync.Mutex
	due  map[string]bool // names of policies
	wake chan struct{}
}

// NewLoop returns a loop over the policies of a server that is not ready yet.
func NewLoop(s objects.Store, schemas Schemas, log *slog.Logger) *Loop {
	l := &Loop{store: s, schemas: schemas, log: log, due: map[string]bool{}, wake: make(chan struct{}, 1)}
	s.Follow(policies, func(_, after catalog.Object) {
		if p, ok := after.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok && outdated(p) {
			l.add(p.Name)
		}
	})
	return l
}

func outdated(p *admissionregistrationv1.ValidatingAdmissionPolicy) bool {
	return p.Generation > p.Status.ObservedGeneration
}

func (l *Loop) add(name string) {
	l.mu.Lock()
	l.due[name] = true
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// take returns the names of the policies that are due, which are not any more.
func (l *Loop) take() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	due := l.due
	l.due = map[string]bool{}
	return due
}

// Run checks policies until the context ends.
func (l *Loop) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		failed := false
		for name := range l.take() {
			if err := l.reconcile(ctx, name); err != nil && ctx.Err() == nil {
				l.log.Warn("failed to write the type checking of a policy", "validatingadmissionpolicy", name, "error", err)
				l.add(name)
				failed = true
			}
		}
		if failed {
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryAfter):
			}
		}
	}
}

// reconcile checks a policy and writes its status, unless that is up to date or the policy is gone.
func (l *Loop) reconcile(ctx context.Context, name string) error {
	p, ok := l.store.Get(policies, "", name).(*admissionregistrationv1.ValidatingAdmissionPolicy)
	if !ok || !outdated(p) {
		return nil
	}
	warnings := Check(p, l.schemas)
	err := l.store.Update(ctx, policies, "status", "", name, func(obj catalog.Object) error {
		status := &obj.(*admissionregistrationv1.ValidatingAdmissionPolicy).Status
		if status.ObservedGeneration < p.Generation {
			status.ObservedGeneration, status.TypeChecking = p.Generation, &admissionregistrationv1.TypeChecking{ExpressionWarnings: warnings}
		}
		return nil
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
