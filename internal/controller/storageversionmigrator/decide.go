package storageversionmigrator

import (
	"fmt"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"skiff/internal/controller"
)

const (
	runningReason   = "MigrationRunning"
	succeededReason = "StorageVersionMigrationSucceeded"
	failedReason    = "StorageVersionMigrationFailed"

	// discoveryTime is how old a migration is when a resource that is not served fails it: a definition may be about to be established.
	discoveryTime = time.Minute
	// firstLookup is the time until a resource that is not served, or not as its definition says, is looked up again.
	firstLookup = 100 * time.Millisecond
)

// decide takes the next step of the migrations of a resource. Each step writes a status, after whose observation the resource is reconciled again.
func decide(migrations []*migration, now time.Time) controller.Decision {
	var running, next *migration
	var actions []controller.Action
	for _, m := range migrations {
		switch {
		case isRunning(m) && isFinished(m):
			actions = append(actions, releaseDefinition(m, now), controller.UpdateStatus(completed(m, now)))
		case isRunning(m) && running == nil:
			running = m
		case !isRunning(m) && !isFinished(m) && next == nil:
			next = m
		}
	}
	switch {
	case len(actions) > 0:
		return write(actions...)
	case running != nil:
		return run(running, now)
	case next != nil && !has(next, storagemigrationv1.MigrationRunning):
		return write(markDefinition(next, now), controller.UpdateStatus(with(next, now, condition(storagemigrationv1.MigrationRunning, runningReason, runningMessage(0, 0, nil)))))
	}
	return controller.Nothing
}

// run takes the next step of a migration that is running.
func run(m *migration, now time.Time) controller.Decision {
	if m.Status.ResourceVersion == "" {
		found := &target{}
		return controller.Decision{Actions: []controller.Action{lookup(m, found)}, Then: func(err error) controller.Decision {
			return begin(m, *found, err, now)
		}}
	}
	result := &progress{}
	return controller.Decision{Actions: []controller.Action{migrate(m, result)}, Then: func(err error) controller.Decision {
		return proceed(m, *result, err, now)
	}}
}

// begin sets the resourceVersion up to which objects are migrated, or fails a migration of what cannot be migrated.
func begin(m *migration, found target, err error, now time.Time) controller.Decision {
	switch {
	case err != nil:
		return controller.Decision{Err: err}
	case !found.served():
		if wait := lookAgain(m, now); wait > 0 {
			return controller.Decision{RequeueAfter: wait}
		}
		return fail(m, now, "resource does not exist in discovery")
	case !found.migratable():
		return fail(m, now, fmt.Sprintf("resource %q does not support discovery operations: %v", found.resource.String(), verbsRequired))
	case found.invalid != nil:
		return fail(m, now, fmt.Sprintf("latest resourceVersion for %s is not valid: %v", found.resource.String(), found.invalid))
	}
	updated := m.DeepCopy()
	updated.Status.ResourceVersion = found.resourceVersion
	return write(controller.UpdateStatus(updated))
}

// proceed writes how a migration ended, or why it has to be tried again.
func proceed(m *migration, p progress, err error, now time.Time) controller.Decision {
	running := condition(storagemigrationv1.MigrationRunning, runningReason, runningMessage(p.left, p.total, nil))
	switch {
	case err != nil:
		return controller.Decision{Err: err}
	case !p.served:
		if wait := lookAgain(m, now); wait > 0 {
			return controller.Decision{RequeueAfter: wait}
		}
		return fail(m, now, "migration encountered unhandled error: unable to obtain GVR from discovery")
	case p.outdated:
		return controller.Decision{RequeueAfter: firstLookup}
	case p.err != nil && !retriable(p.err):
		message := fmt.Sprintf("%d/%d not yet migrated. migration encountered unhandled error: %v", p.left, p.total, p.err)
		return write(controller.UpdateStatus(with(m, now, running, condition(storagemigrationv1.MigrationFailed, failedReason, message))))
	case p.err != nil:
		running.Message = runningMessage(p.left, p.total, p.err)
		return tryAgain(with(m, now, running), p.err)
	}
	return write(controller.UpdateStatus(with(m, now, running, condition(storagemigrationv1.MigrationSucceeded, succeededReason, "Migration completed"))))
}

// tryAgain says in the status why a migration did not proceed, and has it tried again when the server asks for it, or with back-off.
func tryAgain(updated *migration, because error) controller.Decision {
	again := controller.Decision{Err: because}
	if seconds, asked := apierrors.SuggestsClientDelay(because); asked && seconds > 0 {
		again = controller.Decision{RequeueAfter: time.Duration(seconds) * time.Second}
	}
	return controller.Decision{Actions: []controller.Action{controller.UpdateStatus(updated)}, Then: func(error) controller.Decision { return again }}
}

// write carries out the writes of a step. A migration that has been deleted meanwhile needs none.
func write(actions ...controller.Action) controller.Decision {
	return controller.Decision{Actions: actions, Then: func(err error) controller.Decision {
		if apierrors.IsNotFound(err) {
			return controller.Nothing
		}
		return controller.Decision{Err: err}
	}}
}

func fail(m *migration, now time.Time, message string) controller.Decision {
	return write(controller.UpdateStatus(with(m, now, condition(storagemigrationv1.MigrationFailed, failedReason, message))))
}

// lookAgain returns the time until a resource that is not served is looked up again; 0 if the migration has waited long enough.
func lookAgain(m *migration, now time.Time) time.Duration {
	age := now.Sub(m.CreationTimestamp.Time)
	if age >= discoveryTime {
		return 0
	}
	return min(max(age/2, firstLookup), discoveryTime-age)
}

// completed returns a migration that has ended and is not running any more.
func completed(m *migration, now time.Time) *migration {
	c := condition(storagemigrationv1.MigrationRunning, "MigrationCompleted", "Migration completed")
	c.Status, c.ObservedGeneration = metav1.ConditionFalse, m.Generation
	return with(m, now, c)
}

func condition(of storagemigrationv1.MigrationConditionType, reason, message string) metav1.Condition {
	return metav1.Condition{Type: string(of), Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// with returns a migration with conditions set.
func with(m *migration, now time.Time, conditions ...metav1.Condition) *migration {
	m = m.DeepCopy()
	for _, c := range conditions {
		c.LastTransitionTime = metav1.NewTime(now)
		meta.SetStatusCondition(&m.Status.Conditions, c)
	}
	return m
}

func runningMessage(left, total int, transient error) string {
	message := "The migration is running"
	switch {
	case left > 0:
		message += fmt.Sprintf(", %d/%d objects not yet migrated", left, total)
	case total > 0:
		message += fmt.Sprintf(", %d objects verified migrated", total)
	}
	if transient != nil {
		message += fmt.Sprintf("; transient error: %v", transient)
	}
	return message
}

func isRunning(m *migration) bool { return isTrue(m, storagemigrationv1.MigrationRunning) }

func isFinished(m *migration) bool {
	return isTrue(m, storagemigrationv1.MigrationSucceeded) || isTrue(m, storagemigrationv1.MigrationFailed)
}

func isTrue(m *migration, of storagemigrationv1.MigrationConditionType) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, string(of))
}

func has(m *migration, of storagemigrationv1.MigrationConditionType) bool {
	return meta.FindStatusCondition(m.Status.Conditions, string(of)) != nil
}

// retriable reports whether the write of an object that failed may succeed later.
func retriable(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err)
}
