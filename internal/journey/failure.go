package journey

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The stages of calls and of evaluations within requests: what is asked about a write, or about an object that is read.
const (
	MutatingWebhook   = "mutating webhook"
	ValidatingWebhook = "validating webhook"
	MutatingPolicy    = "mutating policy"
	ValidatingPolicy  = "validating policy"
	ConversionWebhook = "conversion webhook"
	ValidationRules   = "validation rules" // the CEL rules of a CustomResourceDefinition
	AggregatedAPI     = "aggregated API"   // the request was forwarded to the server of an APIService
)

// The verdicts of Failures. Those of spans are of more kinds: see package admission.
const (
	Denied     = "denied"      // the webhook or policy refused the write
	Failed     = "failed"      // it could not be called or evaluated, which refused the write
	FailedOpen = "failed open" // it could not be called or evaluated, which its failurePolicy ignored
)

// A Failure is a call of a webhook or an evaluation of a policy that refused a write, or that failed. Of a write that was refused it is all that remains,
// so it is kept apart from the spans, for as long as there are not too many others.
type Failure struct {
	By            string // the stage: MutatingWebhook and so on
	Name          string // of the webhook, the policy or the definition
	Configuration string `json:",omitempty"` // the webhook's configuration, or the policy's binding
	Verdict       string // Denied, Failed or FailedOpen
	Message       string

	// Verb, Resource, Namespace and Object say which request it was about. An object whose name was left to the server has a GenerateName instead.
	Verb         string
	Resource     string // "pods", "deployments.apps/scale"
	Namespace    string `json:",omitempty"`
	Object       string `json:",omitempty"`
	GenerateName string `json:",omitempty"`
	User         string `json:",omitempty"`
	Component    string `json:",omitempty"`
	// Causes are the object versions that the last of the requests was made because of.
	Causes []Cause `json:",omitempty"`

	First, Last time.Time
	Count       int    // of the same failure
	Request     SpanID `json:",omitzero"` // the last of the requests
}

// BecauseOf reports whether the request was made because of an object.
func (f *Failure) BecauseOf(uid string) bool {
	return slices.ContainsFunc(f.Causes, func(c Cause) bool { return c.UID == uid })
}

// failureKey is what the same failures have in common.
type failureKey struct{ by, name, configuration, verdict, verb, resource, namespace, object, generateName, cause string }

func (f *Failure) key() failureKey {
	k := failureKey{f.By, f.Name, f.Configuration, f.Verdict, f.Verb, f.Resource, f.Namespace, f.Object, f.GenerateName, ""}
	if len(f.Causes) > 0 {
		k.cause = f.Causes[0].UID
	}
	return k
}

// clip cuts the texts to the limits of spans.
func (f *Failure) clip() {
	for _, text := range []*string{&f.Name, &f.Configuration, &f.Message, &f.Resource, &f.Namespace, &f.Object, &f.GenerateName, &f.User, &f.Component} {
		*text = clip(*text, MaxValue)
	}
	f.Causes = slices.Clone(f.Causes[:min(len(f.Causes), MaxCauses)])
}

// failures keeps the last failures, each once.
type failures struct {
	most  int
	count atomic.Int32 // len(byKey), to be read without the lock

	mu    sync.Mutex
	byKey map[failureKey]*Failure
}

// Failed records a failure that happened now.
func (r *Recorder) Failed(f Failure) {
	if r == nil {
		return
	}
	f.clip()
	f.Last = r.time().UTC()
	t := &r.failures
	t.mu.Lock()
	defer t.mu.Unlock()
	k := f.key()
	f.First, f.Count = f.Last, 1
	if known := t.byKey[k]; known != nil {
		f.First, f.Count = known.First, known.Count+1
	} else if len(t.byKey) >= t.most {
		t.dropOldest()
	}
	if t.byKey == nil {
		t.byKey = map[failureKey]*Failure{}
	}
	t.byKey[k] = &f
	t.count.Store(int32(len(t.byKey)))
}

func (t *failures) dropOldest() {
	var oldest *Failure
	for _, f := range t.byKey {
		if oldest == nil || f.Last.Before(oldest.Last) {
			oldest = f
		}
	}
	delete(t.byKey, oldest.key())
}

// Recovered removes the failures of what works again, such as the conversion webhook of a definition. It costs next to nothing if there are no failures.
func (r *Recorder) Recovered(by, name string) {
	if r == nil || r.failures.count.Load() == 0 {
		return
	}
	t := &r.failures
	t.mu.Lock()
	defer t.mu.Unlock()
	for k := range t.byKey {
		if k.by == by && k.name == name {
			delete(t.byKey, k)
		}
	}
	t.count.Store(int32(len(t.byKey)))
}

// Failures returns copies of the failures that are wanted, the last first.
func (r *Recorder) Failures(wanted func(*Failure) bool) []Failure {
	if r == nil {
		return nil
	}
	r.failures.mu.Lock()
	defer r.failures.mu.Unlock()
	var found []Failure
	for _, f := range r.failures.byKey {
		if wanted(f) {
			found = append(found, *f)
		}
	}
	slices.SortFunc(found, func(a, b Failure) int {
		return cmp.Or(b.Last.Compare(a.Last), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Configuration, b.Configuration))
	})
	return found
}

// Failed records that a call within the request refused or failed. What the request is about is set here, but for the names of the object.
func (t *Trace) Failed(f Failure) {
	if t == nil {
		return
	}
	f.Request = t.context.Span
	t.mu.Lock()
	if rec := t.record; rec != nil {
		f.Verb, f.Resource, f.Namespace = t.recorder.names.name(rec.verb), rec.resource.in(rec), rec.namespace.in(rec)
		f.User, f.Component = rec.user.in(rec), rec.component.in(rec)
		f.Causes = nil
		for _, c := range rec.causes[:rec.causeCount] {
			f.Causes = append(f.Causes, Cause{UID: c.uid.String(), Revision: c.revision})
		}
	}
	t.mu.Unlock()
	t.recorder.Failed(f)
}
