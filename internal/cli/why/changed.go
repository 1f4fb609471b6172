package why

import (
	"fmt"
	"slices"

	"skiff/internal/journey"
)

// patched is the verdict of a webhook or policy that changed the object.
const patched = "patched"

// eachCall calls visit for the webhooks and policies of the requests that wrote the object, as far as its journey is remembered.
func (s *subject) eachCall(visit func(call *journey.Node, f journey.Failure)) {
	if s.tree.UID == "" {
		return
	}
	for _, root := range s.tree.Roots {
		root.Walk(func(n *journey.Node, _ int) {
			if n.Kind != journey.KindRequest || n.UID != s.tree.UID {
				return
			}
			for _, c := range n.Children {
				if c.Attribute(journey.AttributeVerdict) != "" {
					visit(c, failureOf(n, c))
				}
			}
		})
	}
}

// failureOf returns a call of a request in the form that failures have, whatever came of it.
func failureOf(n, call *journey.Node) journey.Failure {
	f := journey.Failure{By: call.Stage, Name: call.Attribute(journey.AttributeWebhook), Configuration: call.Attribute(journey.AttributeConfiguration),
		Verdict: call.Attribute(journey.AttributeVerdict), Message: call.Error, Verb: n.Stage, Resource: n.Resource, Namespace: n.Namespace, Object: n.Name,
		User: n.User, Component: n.Component, First: call.End(), Last: call.End(), Count: 1}
	if f.Name == "" {
		f.Name, f.Configuration = call.Attribute(journey.AttributePolicy), call.Attribute(journey.AttributeBinding)
	}
	return f
}

// addIgnored adds the failures without which the object was written. Those of an object whose name was left to the server are only in its journey.
func (s *subject) addIgnored() {
	s.eachCall(func(_ *journey.Node, f journey.Failure) {
		known := slices.ContainsFunc(s.failures, func(k journey.Failure) bool {
			return k.By == f.By && k.Name == f.Name && k.Configuration == f.Configuration && k.Verdict == f.Verdict && k.Verb == f.Verb && k.Resource == f.Resource
		})
		if f.Verdict == journey.FailedOpen && !known {
			s.failures = append(s.failures, f)
		}
	})
}

// changed finds the webhooks and policies that changed the object when it was written.
func changed(s *subject) (found []finding) {
	var said []string
	s.eachCall(func(c *journey.Node, f journey.Failure) {
		text := fmt.Sprintf("%s changed it %s.", caller(&f), done(f.Verb))
		if f.Verdict == patched && !slices.Contains(said, text) {
			said = append(said, text)
			found = append(found, finding{text, []string{ago(s.now, c.End()) + ", in " + journey.Took(c.Duration)}})
		}
	})
	return found
}

// done says when in an object's life a request was made.
func done(verb string) string {
	switch verb {
	case "create":
		return "when it was created"
	case "delete", "deletecollection":
		return "when it was deleted"
	}
	return "when it was changed"
}
