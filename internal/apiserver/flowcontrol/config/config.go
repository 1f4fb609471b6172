package config

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
	catalogflowcontrol "skiff/internal/catalog/flowcontrol"
)

// Store reads and writes the objects.
type Store interface {
	Follow(resource schema.GroupResource, changed func(before, after catalog.Object))
	objects.Writer
	// ApplyStatus applies the status of a FlowSchema as a field manager.
	ApplyStatus(ctx context.Context, name, manager string, status *flowcontrolv1.FlowSchemaStatus) error
	// CreateAs and UpdateAs are Create and Update as a field manager.
	CreateAs(ctx context.Context, manager string, obj catalog.Object) error
	UpdateAs(ctx context.Context, resource schema.GroupResource, manager, name string, change func(catalog.Object) error) error
}

// Options are what a Loop works with.
type Options struct {
	Store      Store
	Controller *flowcontrol.Controller
	// RestoreEvery is how often the objects that every cluster has are restored, if any object has changed since: a minute if zero.
	RestoreEvery time.Duration
	Clock        clock.WithTicker // the real one if nil
	Log          *slog.Logger
}

// Loop keeps the configuration of a Controller.
type Loop struct {
	Options
	wake chan struct{} // buffers one wake-up

	mu      sync.Mutex
	levels  map[string]*flowcontrolv1.PriorityLevelConfiguration
	schemas map[string]*flowcontrolv1.FlowSchema

	writes map[string][]time.Time // of the last minute to the status of schemas, by name
}

var (
	schemaResource = flowcontrolv1.Resource("flowschemas")
	levelResource  = flowcontrolv1.Resource("prioritylevelconfigurations")
)

const (
	consumer = "api-priority-and-fairness-config-consumer-v1"
	producer = "api-priority-and-fairness-config-producer-v1"
)

// New returns a loop that follows the objects. Until they are known the Controller has the levels and schemas that a new cluster starts with.
func New(o Options) *Loop {
	if o.RestoreEvery == 0 {
		o.RestoreEvery = time.Minute
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	l := &Loop{Options: o, wake: make(chan struct{}, 1), levels: map[string]*flowcontrolv1.PriorityLevelConfiguration{}, schemas: map[string]*flowcontrolv1.FlowSchema{},
		writes: map[string][]time.Time{}}
	o.Controller.Configure(Defaults())
	o.Store.Follow(levelResource, func(before, after catalog.Object) { follow(l, l.levels, before, after) })
	o.Store.Follow(schemaResource, func(before, after catalog.Object) { follow(l, l.schemas, before, after) })
	return l
}

// Defaults returns the levels and schemas that a new cluster starts with.
func Defaults() ([]flowcontrol.Level, []flowcontrol.Schema) {
	var levels []flowcontrol.Level
	var schemas []flowcontrol.Schema
	for _, o := range append(catalogflowcontrol.Mandatory(), catalogflowcontrol.Suggested()...) {
		switch o := o.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			if level, err := levelOf(o); err == nil {
				levels = append(levels, level)
			}
		case *flowcontrolv1.FlowSchema:
			schemas = append(schemas, schemaOf(o))
		}
	}
	return levels, schemas
}

func follow[T catalog.Object](l *Loop, all map[string]T, before, after catalog.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after != nil {
		all[after.GetName()] = after.(T)
	} else {
		delete(all, before.GetName())
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run applies changes of the objects to the Controller, writes statuses and restores what every cluster has, until ctx ends. The objects must be known, and those
// that every cluster has must exist, or be created soon.
func (l *Loop) Run(ctx context.Context) {
	restore, retry := l.Clock.NewTimer(time.Hour), l.Clock.NewTimer(time.Hour)
	defer restore.Stop()
	defer retry.Stop()
	armed := false // restore fires when it is to
	restoreNow := func() {
		if armed = false; l.restore(ctx) != nil {
			restore.Reset(l.RestoreEvery)
			armed = true
		}
	}
	restoreNow() // this server's version may differ from the last one's
	for {
		if wait := l.sync(ctx); wait > 0 {
			retry.Reset(wait)
		}
		select {
		case <-ctx.Done():
			return
		case <-retry.C():
		case <-l.wake:
			if !armed {
				restore.Reset(l.RestoreEvery)
				armed = true
			}
		case <-restore.C():
			restoreNow()
		}
	}
}

// Sync applies the objects that are known now to the Controller.
func (l *Loop) Sync() { l.digest() }

// statusWrite is a condition that is to be written.
type statusWrite struct {
	name      string
	condition flowcontrolv1.FlowSchemaCondition
}

// sync applies the objects to the Controller and writes the statuses that are not right. It returns after which time it is to be called again, 0 if after no time.
func (l *Loop) sync(ctx context.Context) (wait time.Duration) {
	for _, w := range l.digest() {
		if !l.mayWrite(w.name) {
			wait = time.Duration(30+rand.IntN(45)) * time.Second // another server, or somebody, writes it all the time
			continue
		}
		err := l.Store.ApplyStatus(ctx, w.name, consumer, &flowcontrolv1.FlowSchemaStatus{Conditions: []flowcontrolv1.FlowSchemaCondition{w.condition}})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			l.Log.Warn("failed to write the status of a flow schema", "flowschema", w.name, "err", err)
			wait = max(wait, time.Second)
		}
	}
	return wait
}

// digest applies the objects to the Controller, and returns the conditions that are not right.
func (l *Loop) digest() (writes []statusWrite) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var levels []flowcontrol.Level
	exists := map[string]bool{}
	for _, o := range sorted(l.levels) {
		level, err := levelOf(o)
		if err != nil {
			l.Log.Warn("ignoring a priority level that is not valid", "prioritylevelconfiguration", o.Name, "err", err)
			continue
		}
		levels = append(levels, level)
		exists[o.Name] = true
	}
	var schemas []flowcontrol.Schema
	for _, o := range sorted(l.schemas) {
		level := o.Spec.PriorityLevelConfiguration.Name
		if c, ok := dangling(o, exists[level]); ok {
			c.LastTransitionTime = metav1.NewTime(l.Clock.Now())
			writes = append(writes, statusWrite{o.Name, c})
		}
		if exists[level] {
			schemas = append(schemas, schemaOf(o))
		}
	}
	levels, schemas = withMandatory(levels, schemas)
	l.Controller.Configure(levels, schemas)
	return writes
}

func sorted[T catalog.Object](all map[string]T) []T {
	return slices.SortedFunc(maps.Values(all), func(a, b T) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// withMandatory adds the mandatory levels and schemas that are missing.
func withMandatory(levels []flowcontrol.Level, schemas []flowcontrol.Schema) ([]flowcontrol.Level, []flowcontrol.Schema) {
	for _, o := range catalogflowcontrol.Mandatory() {
		switch o := o.(type) {
		case *flowcontrolv1.PriorityLevelConfiguration:
			if !slices.ContainsFunc(levels, func(l flowcontrol.Level) bool { return l.Name == o.Name }) {
				if level, err := levelOf(o); err == nil {
					levels = append(levels, level)
				}
			}
		case *flowcontrolv1.FlowSchema:
			if !slices.ContainsFunc(schemas, func(s flowcontrol.Schema) bool { return s.Name == o.Name }) {
				schemas = append(schemas, schemaOf(o))
			}
		}
	}
	return levels, schemas
}

// dangling returns the condition that a schema should have, and whether it has another one.
func dangling(s *flowcontrolv1.FlowSchema, levelExists bool) (want flowcontrolv1.FlowSchemaCondition, differs bool) {
	level := s.Spec.PriorityLevelConfiguration.Name
	want = flowcontrolv1.FlowSchemaCondition{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionFalse, Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists", level)}
	if !levelExists {
		want.Status, want.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		want.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q but there is no such object", level)
	}
	for _, c := range s.Status.Conditions {
		if c.Type == want.Type {
			return want, c.Status != want.Status || c.Reason != want.Reason || c.Message != want.Message
		}
	}
	return want, true
}

// maxWrites is how often the status of a schema is written in a minute.
const maxWrites = 6

// mayWrite counts a write to the status of a schema, unless there were too many.
func (l *Loop) mayWrite(name string) bool {
	now := l.Clock.Now()
	for other, times := range l.writes {
		l.writes[other] = slices.DeleteFunc(times, func(t time.Time) bool { return now.Sub(t) > time.Minute })
		if len(l.writes[other]) == 0 {
			delete(l.writes, other)
		}
	}
	if len(l.writes[name]) >= maxWrites {
		return false
	}
	l.writes[name] = append(l.writes[name], now)
	return true
}
