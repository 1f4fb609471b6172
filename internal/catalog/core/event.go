package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Event is the stored form of all events. The group events.k8s.io serves the same ones in another form.
var Event = catalog.Resource[corev1.Event]{
	Version: "v1", Kind: "Event", Plural: "events", Short: []string{"ev"}, Namespaced: true,
	Deletion:            catalog.Deletion[corev1.Event]{NoDependents: true},
	AnyFinalizer:        true,
	Expires:             true,
	Uncached:            true,
	Name:                path.ValidatePathSegmentName, // old clients name events after anything
	CreateOnUpdate:      true,
	UnconditionalUpdate: true,
	Validate:            func(e *corev1.Event) field.ErrorList { return ValidateEvent(e, "reportingComponent") },
	ValidateUpdate:      func(new, _ *corev1.Event) field.ErrorList { return ValidateEvent(new, "reportingComponent") },
	Fields: []catalog.Field[corev1.Event]{
		{Name: "involvedObject.kind", Value: func(e *corev1.Event) string { return e.InvolvedObject.Kind }},
		{Name: "involvedObject.namespace", Value: func(e *corev1.Event) string { return e.InvolvedObject.Namespace }},
		{Name: "involvedObject.name", Value: func(e *corev1.Event) string { return e.InvolvedObject.Name }},
		{Name: "involvedObject.uid", Value: func(e *corev1.Event) string { return string(e.InvolvedObject.UID) }},
		{Name: "involvedObject.apiVersion", Value: func(e *corev1.Event) string { return e.InvolvedObject.APIVersion }},
		{Name: "involvedObject.resourceVersion", Value: func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion }},
		{Name: "involvedObject.fieldPath", Value: func(e *corev1.Event) string { return e.InvolvedObject.FieldPath }},
		{Name: "reason", Value: func(e *corev1.Event) string { return e.Reason }},
		{Name: "reportingComponent", Value: func(e *corev1.Event) string { return e.ReportingController }},
		{Name: "source", Value: func(e *corev1.Event) string { return either(e.Source.Component, e.ReportingController) }},
		{Name: "type", Value: func(e *corev1.Event) string { return e.Type }},
	},
	Columns:  eventColumns,
	Complete: true,
}

const (
	maxEventWord    = 128 // reason, action, reportingInstance
	maxEventMessage = 1024
)

// ValidateEvent applies the rules for events of both groups. Events with an eventTime are of the new style and must name
// their reporter and action; controllerField is the group's name of the field of the reporting controller.
func ValidateEvent(e *corev1.Event, controllerField string) field.ErrorList {
	p := check.At(nil)
	if e.EventTime.IsZero() {
		validateOldEventNamespace(p, e)
		return p.Errors()
	}
	if e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		eventNamespaceMismatch(p, e)
	}
	if e.ReportingController == "" {
		p.Required(controllerField, "")
	}
	p.Format(controllerField, e.ReportingController, validation.IsQualifiedName)
	for _, word := range []struct{ name, value string }{
		{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
	} {
		if word.value == "" {
			p.Required(word.name, "")
		}
		atMost(p, word.name, word.value, maxEventWord)
	}
	atMost(p, "message", e.Message, maxEventMessage)
	return p.Errors()
}

// validateOldEventNamespace requires an event to be in its object's namespace; events about cluster-scoped objects are in default.
func validateOldEventNamespace(p *check.Part, e *corev1.Event) {
	object := e.InvolvedObject.Namespace
	if object == e.Namespace || object == "" && e.Namespace == metav1.NamespaceDefault {
		return
	}
	eventNamespaceMismatch(p, e)
}

func eventNamespaceMismatch(p *check.Part, e *corev1.Event) {
	p.Child("involvedObject").Invalid("namespace", e.InvolvedObject.Namespace, "does not match event.namespace")
}

func atMost(p *check.Part, name, value string, limit int) {
	if len(value) > limit {
		p.Invalid(name, "", fmt.Sprintf("can have at most %v characters", limit))
	}
}

var eventDoc = corev1.Event{}.SwaggerDoc()

var eventColumns = []catalog.Column[corev1.Event]{
	{Name: "Last Seen", Description: eventDoc["lastTimestamp"], Timed: true, Cell: lastSeen},
	{Name: "Type", Description: eventDoc["type"],
		Cell: func(e *corev1.Event, _ time.Time) any { return e.Type }},
	{Name: "Reason", Description: eventDoc["reason"],
		Cell: func(e *corev1.Event, _ time.Time) any { return e.Reason }},
	{Name: "Object", Description: eventDoc["involvedObject"], Cell: eventObject},
	{Name: "Subobject", Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], Priority: 1,
		Cell: func(e *corev1.Event, _ time.Time) any { return e.InvolvedObject.FieldPath }},
	{Name: "Source", Description: eventDoc["source"], Priority: 1, Cell: eventSource},
	{Name: "Message", Description: eventDoc["message"],
		Cell: func(e *corev1.Event, _ time.Time) any { return strings.TrimSpace(e.Message) }},
	{Name: "First Seen", Description: eventDoc["firstTimestamp"], Priority: 1, Timed: true,
		Cell: func(e *corev1.Event, now time.Time) any { return catalog.Since(firstTime(e), now) }},
	{Name: "Count", Description: eventDoc["count"], Priority: 1, Cell: eventCount},
	eventNameColumn(),
}

func eventNameColumn() catalog.Column[corev1.Event] {
	c := catalog.NameColumn[corev1.Event]()
	c.Priority = 1
	return c
}

func firstTime(e *corev1.Event) metav1.Time {
	if e.FirstTimestamp.IsZero() {
		return metav1.Time(e.EventTime)
	}
	return e.FirstTimestamp
}

func lastSeen(e *corev1.Event, now time.Time) any {
	switch {
	case e.Series != nil:
		return catalog.Since(metav1.Time(e.Series.LastObservedTime), now)
	case e.LastTimestamp.IsZero():
		return catalog.Since(firstTime(e), now)
	}
	return catalog.Since(e.LastTimestamp, now)
}

func eventObject(e *corev1.Event, _ time.Time) any {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

func eventSource(e *corev1.Event, _ time.Time) any {
	source := either(e.Source.Component, e.ReportingController)
	if host := either(e.Source.Host, e.ReportingInstance); host != "" {
		source += ", " + host
	}
	return source
}

// eventCount returns the count of an event; it is 1 for an event of the new style that is no series.
func eventCount(e *corev1.Event, _ time.Time) any {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.Count == 0:
		return int64(1)
	}
	return int64(e.Count)
}

func either(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
