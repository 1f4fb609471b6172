package webhook

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/matchconditions"
	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/admission/webhook/match"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// webhook is a webhook of either kind. The types differ only in reinvocationPolicy, which validating webhooks lack.
type webhook = admissionregistrationv1.MutatingWebhook

// hook is a webhook of a configuration, compiled.
type hook struct {
	*webhook
	configuration string
	uid           string // unique among all hooks: names are not

	namespaces, objects       labels.Selector
	namespacesErr, objectsErr error
	conditions                func() *matchconditions.Matcher // compiled when first needed; nil if there are none

	endpoint    *client.Endpoint
	path        string
	endpointErr error
}

func (h *hook) ignoresFailure() bool {
	return ptr.Deref(h.FailurePolicy, admissionregistrationv1.Fail) == admissionregistrationv1.Ignore
}

// hooks follows the configurations of one kind and has the index of their webhooks.
type hooks struct {
	pool       *client.Pool
	authorizer authz.Authorizer
	current    atomic.Pointer[index] // nil while there are no webhooks

	byConfiguration map[string]*configuration // only for changed, which is never called concurrently
}

// configuration is a compiled configuration.
type configuration struct {
	uid        string
	generation int64
	hooks      []*hook
}

// follow keeps the index up to date with the configurations of a resource.
func (s *hooks) follow(r objects.Reader, resource string, webhooksOf func(catalog.Object) []webhook) {
	s.byConfiguration = map[string]*configuration{}
	r.Follow(schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: resource}, func(before, after catalog.Object) {
		if after == nil {
			s.replace(before.GetName(), nil)
			return
		}
		known := s.byConfiguration[after.GetName()]
		if known != nil && known.uid == string(after.GetUID()) && known.generation == after.GetGeneration() && known.generation != 0 {
			return // only metadata has changed: what is compiled stays
		}
		s.replace(after.GetName(), s.compile(after, webhooksOf(after)))
	})
}

// replace puts a compiled configuration into the index, or removes the one of that name. The endpoints of the old one are released after those of the new
// one are acquired, so that connections to the same server are kept.
func (s *hooks) replace(name string, c *configuration) {
	old := s.byConfiguration[name]
	if c == nil {
		delete(s.byConfiguration, name)
	} else {
		s.byConfiguration[name] = c
	}
	next := &index{}
	for _, name := range slices.Sorted(maps.Keys(s.byConfiguration)) {
		next.hooks = append(next.hooks, s.byConfiguration[name].hooks...)
	}
	if len(next.hooks) == 0 {
		next = nil
	}
	s.current.Store(next)
	if old != nil {
		for _, h := range old.hooks {
			if h.endpoint != nil {
				s.pool.Release(h.endpoint)
			}
		}
	}
}

func (s *hooks) compile(obj catalog.Object, webhooks []webhook) *configuration {
	c, count := &configuration{uid: string(obj.GetUID()), generation: obj.GetGeneration()}, map[string]int{}
	for i := range webhooks {
		h := &hook{webhook: &webhooks[i], configuration: obj.GetName()}
		h.uid = fmt.Sprintf("%s/%s/%d", h.configuration, h.Name, count[h.Name])
		count[h.Name]++
		h.namespaces, h.namespacesErr = metav1.LabelSelectorAsSelector(h.NamespaceSelector)
		h.objects, h.objectsErr = metav1.LabelSelectorAsSelector(h.ObjectSelector)
		if len(h.MatchConditions) > 0 {
			h.conditions = sync.OnceValue(func() *matchconditions.Matcher {
				return matchconditions.Compile(h.MatchConditions, false, s.authorizer)
			})
		}
		h.endpoint, h.path, h.endpointErr = s.pool.Acquire(&h.ClientConfig)
		c.hooks = append(c.hooks, h)
	}
	return c
}

// index has the webhooks of all configurations in the order in which they are called. Only its memory changes.
type index struct {
	hooks []*hook

	mu    sync.RWMutex
	known map[subject]*candidates
}

// subject is all that rules look at in a request.
type subject struct {
	info        *catalog.Info
	subresource string
	operation   admission.Operation
}

// candidates are the webhooks whose rules select a subject.
type candidates struct {
	related []*catalog.Info // when the rules were compared
	list    []candidate
}

// candidate is a webhook whose rules select a request.
type candidate struct {
	*hook
	position int // among all webhooks
	// as is the resource by which the rules select the request: that of the request, or another one that serves the same objects.
	as *catalog.Info
}

// maxKnown bounds the subjects that an index remembers: about as many as there are resources with their subresources and operations.
const maxKnown = 8192

// candidates returns the webhooks whose rules select the request, in order.
func (x *index) candidates(a *admission.Attributes) []candidate {
	if x == nil || match.Exempt(a.Info.GVK) || match.Excluded(a.Info.GVR.GroupResource()) {
		return nil
	}
	s := subject{a.Info, a.Subresource, a.Operation}
	x.mu.RLock()
	found := x.known[s]
	x.mu.RUnlock()
	if found != nil && slices.Equal(found.related, a.Related) {
		return found.list
	}
	found = &candidates{related: a.Related, list: x.compare(a)}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known == nil || len(x.known) >= maxKnown {
		x.known = map[subject]*candidates{}
	}
	x.known[s] = found
	return found.list
}

// compare compares a request with the rules of all webhooks.
func (x *index) compare(a *admission.Attributes) (list []candidate) {
	target := func(info *catalog.Info) match.Target {
		return match.Target{Operation: string(a.Operation), Resource: info.GVR, Subresource: a.Subresource, Namespaced: info.Namespaced}
	}
	for i, h := range x.hooks {
		if match.Rules(h.Rules, target(a.Info)) {
			list = append(list, candidate{h, i, a.Info})
			continue
		}
		if ptr.Deref(h.MatchPolicy, admissionregistrationv1.Equivalent) != admissionregistrationv1.Equivalent {
			continue
		}
		if as := equivalent(h.Rules, a.Related, target); as != nil {
			list = append(list, candidate{h, i, as})
		}
	}
	return list
}

// equivalent returns the first of the related resources that a rule selects; earlier rules come first.
func equivalent(rules []admissionregistrationv1.RuleWithOperations, related []*catalog.Info, target func(*catalog.Info) match.Target) *catalog.Info {
	for i := range rules {
		for _, info := range related {
			if match.Rule(&rules[i], target(info)) {
				return info
			}
		}
	}
	return nil
}
