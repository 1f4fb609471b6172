package events

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/core"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{Event} }

var Event = catalog.View[eventsv1.Event, corev1.Event]{
	Resource: catalog.Resource[eventsv1.Event]{
		Group: "events.k8s.io", Version: "v1", Kind: "Event", Plural: "events", Short: []string{"ev"}, Namespaced: true,
		Expires:             true,
		Name:                validation.NameIsDNSSubdomain,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
		Fields: []catalog.Field[eventsv1.Event]{
			{Name: "reason", Value: func(e *eventsv1.Event) string { return e.Reason }},
			{Name: "regarding.kind", Value: func(e *eventsv1.Event) string { return e.Regarding.Kind }},
			{Name: "regarding.namespace", Value: func(e *eventsv1.Event) string { return e.Regarding.Namespace }},
			{Name: "regarding.name", Value: func(e *eventsv1.Event) string { return e.Regarding.Name }},
			{Name: "regarding.uid", Value: func(e *eventsv1.Event) string { return string(e.Regarding.UID) }},
			{Name: "regarding.apiVersion", Value: func(e *eventsv1.Event) string { return e.Regarding.APIVersion }},
			{Name: "regarding.resourceVersion", Value: func(e *eventsv1.Event) string { return e.Regarding.ResourceVersion }},
			{Name: "regarding.fieldPath", Value: func(e *eventsv1.Event) string { return e.Regarding.FieldPath }},
			{Name: "reportingController", Value: func(e *eventsv1.Event) string { return e.ReportingController }},
			{Name: "type", Value: func(e *eventsv1.Event) string { return e.Type }},
		},
		Complete: true,
	},
	Of:         func() *catalog.Info { return strict.Info() },
	ToStored:   toStored,
	FromStored: fromStored,
}

// strict is the stored resource with this group's rules. They apply to the stored form, and errors have its field names.
var strict = func() catalog.Resource[corev1.Event] {
	r := core.Event
	r.Name, r.AnyFinalizer = validation.NameIsDNSSubdomain, false
	r.Validate, r.ValidateUpdate = validateNew, validateUpdate
	return r
}()

func toStored(e *eventsv1.Event) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          e.ObjectMeta,
		EventTime:           e.EventTime,
		Series:              (*corev1.EventSeries)(e.Series),
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
		Action:              e.Action,
		Reason:              e.Reason,
		InvolvedObject:      e.Regarding,
		Related:             e.Related,
		Message:             e.Note,
		Type:                e.Type,
		Source:              e.DeprecatedSource,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
	}
}

func fromStored(e *corev1.Event) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:               e.ObjectMeta,
		EventTime:                e.EventTime,
		Series:                   (*eventsv1.EventSeries)(e.Series),
		ReportingController:      e.ReportingController,
		ReportingInstance:        e.ReportingInstance,
		Action:                   e.Action,
		Reason:                   e.Reason,
		Regarding:                e.InvolvedObject,
		Related:                  e.Related,
		Note:                     e.Message,
		Type:                     e.Type,
		DeprecatedSource:         e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp:  e.LastTimestamp,
		DeprecatedCount:          e.Count,
	}
}

// validateNew refuses events of the old style, and fields that only those have.
func validateNew(e *corev1.Event) field.ErrorList {
	p := check.At(nil)
	p.Add(core.ValidateEvent(e, "reportingController")...)
	validateSeries(p, e)
	if e.EventTime.IsZero() {
		p.Required("eventTime", "")
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		p.Invalid("type", "", "has invalid value: "+e.Type)
	}
	for _, old := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()},
		{"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if old.set {
			p.Invalid(old.name, "", "needs to be unset")
		}
	}
	return p.Errors()
}

func validateSeries(p *check.Part, e *corev1.Event) {
	if e.Series == nil {
		return
	}
	if e.Series.Count < 2 {
		p.Invalid("series.count", "", "should be at least 2")
	}
	if e.Series.LastObservedTime.IsZero() {
		p.Required("series.lastObservedTime", "")
	}
}

// validateUpdate allows only the series to change.
func validateUpdate(new, old *corev1.Event) field.ErrorList {
	p := check.At(nil)
	p.Add(core.ValidateEvent(new, "reportingController")...)
	if !sameSeries(new.Series, old.Series) {
		validateSeries(p, new)
	}
	p.Immutable("involvedObject", new.InvolvedObject, old.InvolvedObject)
	p.Immutable("reason", new.Reason, old.Reason)
	p.Immutable("message", new.Message, old.Message)
	p.Immutable("source", new.Source, old.Source)
	p.Immutable("firstTimestamp", new.FirstTimestamp, old.FirstTimestamp)
	p.Immutable("lastTimestamp", new.LastTimestamp, old.LastTimestamp)
	p.Immutable("count", new.Count, old.Count)
	p.Immutable("type", new.Type, old.Type)
	// Clients truncate times to microseconds.
	if !new.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		p.Immutable("eventTime", new.EventTime, old.EventTime)
	}
	p.Immutable("action", new.Action, old.Action)
	p.Immutable("related", new.Related, old.Related)
	p.Immutable("reportingController", new.ReportingController, old.ReportingController)
	p.Immutable("reportingInstance", new.ReportingInstance, old.ReportingInstance)
	return p.Errors()
}

func sameSeries(a, b *corev1.EventSeries) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Count == b.Count && a.LastObservedTime.Equal(&b.LastObservedTime)
}
