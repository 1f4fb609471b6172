package flowcontrol

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// FlowBy is the flow distinguisher of a Schema.
type FlowBy int

// The flow distinguishers, which are upstream's.
const (
	FlowBySchema FlowBy = iota // all requests of the schema are one flow
	FlowByUser
	FlowByNamespace
)

// Schema assigns requests to a priority level and a flow, as a FlowSchema describes it.
type Schema struct {
	Name       string
	UID        string // of the object; empty for a schema that exists without one
	Level      string
	Precedence int // of the schemas that match a request, the one with the lowest number applies, and of these the one whose name comes first
	FlowBy     FlowBy
	Rules      []Rule // a request that matches one of them matches the schema
}

// Rule matches requests by who sends them and what they ask for.
type Rule struct {
	Subjects []Subject
	// Resources and Paths select the requests that the rule applies to.
	Resources []ResourceRule
	Paths     []PathRule
}

// Subject matches users. Exactly one of its fields is set. All as a user or a group matches anybody.
type Subject struct {
	User                    string
	Group                   string
	ServiceAccountNamespace string // any service account of that namespace
}

// ResourceRule matches requests for resources; All as the only item of a list matches anything.
type ResourceRule struct {
	Verbs, Groups []string
	Resources     []string // "nodes", "nodes/status"
	ClusterScope  bool     // requests without a namespace match
	Namespaces    []string
}

// PathRule matches requests that are not for resources; All as the only item of Verbs matches anything. A path matches itself and what is below it.
type PathRule struct{ Verbs, Paths []string }

// All matches anything in a rule.
const All = "*"

// Request describes an arriving request.
type Request struct {
	User     string
	Groups   []string
	Verb     string
	Resource bool // a request for a resource: the fields from Group to Name are set; otherwise only Path is
	Group    string
	Version  string
	// Plural and Subresource are the resource: "nodes", "status".
	Plural, Subresource string
	Namespace, Name     string
	Path, Query         string
	Mutating            bool
	Arrived             time.Time
	MaxWait             time.Duration // how long the request waits for a seat at most; Options.MaxWait if zero
}

// compareSchemas orders schemas by precedence, and then by name.
func compareSchemas(a, b Schema) int {
	return cmp.Or(cmp.Compare(a.Precedence, b.Precedence), strings.Compare(a.Name, b.Name))
}

func (s *Schema) matches(r *Request) bool {
	for i := range s.Rules {
		if s.Rules[i].matches(r) {
			return true
		}
	}
	return false
}

func (rule *Rule) matches(r *Request) bool {
	for i := range rule.Subjects {
		if rule.Subjects[i].matches(r) {
			return rule.applies(r)
		}
	}
	return false
}

func (rule *Rule) applies(r *Request) bool {
	if r.Resource {
		for i := range rule.Resources {
			if rule.Resources[i].matches(r) {
				return true
			}
		}
		return false
	}
	for i := range rule.Paths {
		if paths := &rule.Paths[i]; has(paths.Verbs, r.Verb) && hasPath(paths.Paths, r.Path) {
			return true
		}
	}
	return false
}

func (rule *ResourceRule) matches(r *Request) bool {
	if !has(rule.Verbs, r.Verb) || !has(rule.Groups, r.Group) || !hasResource(rule.Resources, r.Plural, r.Subresource) {
		return false
	}
	if r.Namespace == "" {
		return rule.ClusterScope
	}
	return has(rule.Namespaces, r.Namespace)
}

func has(list []string, s string) bool {
	if isAll(list) {
		return true
	}
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func isAll(list []string) bool { return len(list) == 1 && list[0] == All }

func hasResource(list []string, plural, subresource string) bool {
	if isAll(list) {
		return true
	}
	for _, l := range list {
		rest, ok := strings.CutPrefix(l, plural)
		if ok && (rest == "" && subresource == "" || rest != "" && subresource != "" && rest[0] == '/' && rest[1:] == subresource) {
			return true
		}
	}
	return false
}

// hasPath reports whether a list has a path or one above it: "/healthz" and "/healthz/*" are above "/healthz/ping".
func hasPath(list []string, path string) bool {
	for _, l := range list {
		if l == All || l == path {
			return true
		}
		above := strings.TrimSuffix(strings.TrimSuffix(l, All), "/")
		if rest, ok := strings.CutPrefix(path, above); ok && strings.HasPrefix(rest, "/") {
			return true
		}
	}
	return false
}

const (
	serviceAccountPrefix = "system:serviceaccount:"
	masters              = "system:masters"
)

func (u *Subject) matches(r *Request) bool {
	switch {
	case u.User != "":
		return u.User == r.User || u.User == All
	case u.Group != "":
		return u.Group == All || slices.Contains(r.Groups, u.Group)
	case u.ServiceAccountNamespace != "":
		rest, ok := strings.CutPrefix(r.User, serviceAccountPrefix)
		if !ok {
			return false
		}
		rest, ok = strings.CutPrefix(rest, u.ServiceAccountNamespace)
		return ok && strings.HasPrefix(rest, ":")
	default:
		return false
	}
}

// flow returns the key of the flow that a request belongs to.
func (s *Schema) flow(r *Request) flowKey {
	key := flowKey{schema: s.Name}
	switch s.FlowBy {
	case FlowByUser:
		key.distinguisher = r.User
	case FlowByNamespace:
		key.distinguisher = r.Namespace
	}
	return key
}
