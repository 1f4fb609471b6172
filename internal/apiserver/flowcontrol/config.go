package flowcontrol

import (
	"slices"
	"strings"
)

// Level is a priority level. Its requests share seats.
type Level struct {
	Name   string
	Exempt bool // requests execute at once and take no seat
	// Shares is the level's weight in the division of all seats (nominalConcurrencyShares).
	Shares int
	// LendablePercent is the percentage of its seats that other levels may borrow.
	LendablePercent int
	// QueueLength is the number of requests of one flow that may wait.
	QueueLength int
}

// FlowBy is the flow distinguisher of a Schema.
type FlowBy int

// The flow distinguishers, which are upstream's.
const (
	FlowBySchema FlowBy = iota // all requests of the schema are one flow
	FlowByUser
	FlowByNamespace
)

// Schema is a flow schema: it assigns requests to a priority level and a flow.
type Schema struct {
	Name     string
	Level    string
	FlowBy   FlowBy
	Subjects []Subject
	// Resources and Paths select the requests that the schema applies to.
	Resources []ResourceRule
	Paths     []PathRule
}

// Subject matches users. Exactly one of its fields is set.
type Subject struct {
	User                    string
	Group                   string
	ServiceAccountNamespace string // any service account of that namespace
}

// ResourceRule matches requests for resources; All in a list matches anything.
type ResourceRule struct {
	Verbs, Groups []string
	Resources     []string // "nodes", "nodes/status"
}

// PathRule matches requests that are not for resources; All in a list matches anything.
type PathRule struct{ Verbs, Paths []string }

// All matches anything in a rule.
const All = "*"

// Request describes an arriving request.
type Request struct {
	User     string
	Groups   []string
	Verb     string
	Resource bool // a request for a resource: the fields from Group to Namespace are set; otherwise Path is
	Group    string
	// Plural and Subresource are the resource: "nodes", "status".
	Plural, Subresource string
	Namespace           string
	Path                string
	Mutating            bool
}

func (s *Schema) matches(r *Request) bool {
	for i := range s.Subjects {
		if s.Subjects[i].matches(r) {
			return s.applies(r)
		}
	}
	return false
}

func (s *Schema) applies(r *Request) bool {
	if r.Resource {
		for i := range s.Resources {
			rule := &s.Resources[i]
			if has(rule.Verbs, r.Verb) && has(rule.Groups, r.Group) && hasResource(rule.Resources, r.Plural, r.Subresource) {
				return true
			}
		}
		return false
	}
	for i := range s.Paths {
		if rule := &s.Paths[i]; has(rule.Verbs, r.Verb) && has(rule.Paths, r.Path) {
			return true
		}
	}
	return false
}

func has(list []string, s string) bool {
	for _, l := range list {
		if l == s || l == All {
			return true
		}
	}
	return false
}

func hasResource(list []string, plural, subresource string) bool {
	for _, l := range list {
		if l == All {
			return true
		}
		p, sub, _ := strings.Cut(l, "/")
		if p == plural && sub == subresource {
			return true
		}
	}
	return false
}

const (
	serviceAccountPrefix = "system:serviceaccount:"
	masters              = "system:masters"
	nodes                = "system:nodes"
	serviceAccounts      = "system:serviceaccounts"
	authenticated        = "system:authenticated"
	unauthenticated      = "system:unauthenticated"
	controllerManager    = "system:kube-controller-manager"
	scheduler            = "system:kube-scheduler"
	kubeSystem           = "kube-system"
)

func (u *Subject) matches(r *Request) bool {
	switch {
	case u.User != "":
		return r.User == u.User
	case u.Group != "":
		return slices.Contains(r.Groups, u.Group)
	default:
		rest, ok := strings.CutPrefix(r.User, serviceAccountPrefix)
		if !ok {
			return false
		}
		rest, ok = strings.CutPrefix(rest, u.ServiceAccountNamespace)
		return ok && strings.HasPrefix(rest, ":")
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

const (
	// userQueueLength is the queue length of a flow of users: with upstream's shuffle sharding a flow has 6 queues of 50.
	userQueueLength = 300
	// systemQueueLength is the queue length of a flow of system components, which are bounded by the number of their workers.
	systemQueueLength = 5000
)

// DefaultLevels returns upstream's mandatory and suggested priority levels.
func DefaultLevels() []Level {
	return []Level{
		{Name: "exempt", Exempt: true},
		{Name: "leader-election", Shares: 10, LendablePercent: 0, QueueLength: systemQueueLength},
		{Name: "node-high", Shares: 40, LendablePercent: 25, QueueLength: systemQueueLength},
		{Name: "system", Shares: 30, LendablePercent: 33, QueueLength: systemQueueLength},
		{Name: "workload-high", Shares: 40, LendablePercent: 50, QueueLength: systemQueueLength},
		{Name: "workload-low", Shares: 100, LendablePercent: 90, QueueLength: userQueueLength},
		{Name: "global-default", Shares: 20, LendablePercent: 50, QueueLength: userQueueLength},
		{Name: "catch-all", Shares: 5, LendablePercent: 0},
	}
}

// DefaultSchemas returns upstream's mandatory and suggested flow schemas, by precedence.
func DefaultSchemas() []Schema {
	all := []string{All}
	anyResource := []ResourceRule{{Verbs: all, Groups: all, Resources: all}}
	anyPath := []PathRule{{Verbs: all, Paths: all}}
	everyone := []Subject{{Group: authenticated}, {Group: unauthenticated}}
	inKubeSystem := Subject{ServiceAccountNamespace: kubeSystem}
	nodeGroup := []Subject{{Group: nodes}}
	return []Schema{
		{Name: "exempt", Level: "exempt", Subjects: []Subject{{Group: masters}}, Resources: anyResource, Paths: anyPath},
		{Name: "probes", Level: "exempt", Subjects: everyone, Paths: []PathRule{{Verbs: []string{"get"}, Paths: []string{"/healthz", "/readyz", "/livez"}}}},
		{Name: "system-leader-election", Level: "leader-election", FlowBy: FlowByUser, Subjects: []Subject{{User: controllerManager}, {User: scheduler}, inKubeSystem},
			Resources: []ResourceRule{{Verbs: []string{"get", "create", "update"}, Groups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}}},
		{Name: "system-node-high", Level: "node-high", FlowBy: FlowByUser, Subjects: nodeGroup, Resources: []ResourceRule{
			{Verbs: all, Groups: []string{""}, Resources: []string{"nodes", "nodes/status"}}, {Verbs: all, Groups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}}},
		{Name: "system-nodes", Level: "system", FlowBy: FlowByUser, Subjects: nodeGroup, Resources: anyResource, Paths: anyPath},
		{Name: "kube-controller-manager", Level: "workload-high", FlowBy: FlowByNamespace, Subjects: []Subject{{User: controllerManager}}, Resources: anyResource, Paths: anyPath},
		{Name: "kube-scheduler", Level: "workload-high", FlowBy: FlowByNamespace, Subjects: []Subject{{User: scheduler}}, Resources: anyResource, Paths: anyPath},
		{Name: "kube-system-service-accounts", Level: "workload-high", FlowBy: FlowByNamespace, Subjects: []Subject{inKubeSystem}, Resources: anyResource, Paths: anyPath},
		{Name: "service-accounts", Level: "workload-low", FlowBy: FlowByUser, Subjects: []Subject{{Group: serviceAccounts}}, Resources: anyResource, Paths: anyPath},
		{Name: "global-default", Level: "global-default", FlowBy: FlowByUser, Subjects: everyone, Resources: anyResource, Paths: anyPath},
	}
}

// catchAll is the schema of requests that no other matches.
const catchAll = "catch-all"
