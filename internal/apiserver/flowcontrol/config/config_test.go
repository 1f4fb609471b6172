package config

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/flowcontrol"
	"skiff/internal/catalog"
	catalogflowcontrol "skiff/internal/catalog/flowcontrol"
)

const (
	masters           = "system:masters"
	nodes             = "system:nodes"
	serviceAccounts   = "system:serviceaccounts"
	authenticated     = "system:authenticated"
	unauthenticated   = "system:unauthenticated"
	controllerManager = "system:kube-controller-manager"
	scheduler         = "system:kube-scheduler"
	kubeSystem        = "kube-system"
)

func newController() *flowcontrol.Controller {
	c := flowcontrol.New(flowcontrol.Options{ReadOnly: 400, Mutating: 200})
	c.Configure(Defaults())
	return c
}

// TestDefaults: requests are assigned to the levels and flows of upstream's configuration.
func TestDefaults(t *testing.T) {
	c := newController()
	account := []string{serviceAccounts, authenticated}
	known := []string{authenticated}
	for _, test := range []struct {
		name                string
		r                   flowcontrol.Request
		schema, level, flow string
	}{
		{"the administrator", flowcontrol.Request{User: "admin", Groups: []string{masters, authenticated}, Verb: "list", Resource: true, Plural: "pods"}, "exempt", "exempt", ""},
		{"a probe", flowcontrol.Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "get", Path: "/livez"}, "probes", "exempt", ""},
		{"a check of a probe", flowcontrol.Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "get", Path: "/livez/etcd"}, "probes", "exempt", ""},
		{"a path that only begins like a probe's", flowcontrol.Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "get", Path: "/livezz"}, "global-default", "global-default", "system:anonymous"},
		{"a write to a probe's path", flowcontrol.Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "post", Path: "/livez"}, "global-default", "global-default", "system:anonymous"},
		{"the version", flowcontrol.Request{User: "system:anonymous", Groups: []string{unauthenticated}, Verb: "get", Path: "/version"}, "global-default", "global-default", "system:anonymous"},
		{"a scheduler's lease", flowcontrol.Request{User: scheduler, Groups: known, Verb: "update", Resource: true, Group: "coordination.k8s.io", Plural: "leases", Namespace: kubeSystem}, "system-leader-election", "leader-election", scheduler},
		{"a node's lease", flowcontrol.Request{User: "system:node:a", Groups: []string{nodes, authenticated}, Verb: "update", Resource: true, Group: "coordination.k8s.io", Plural: "leases", Namespace: "kube-node-lease"}, "system-node-high", "node-high", "system:node:a"},
		{"a node's status", flowcontrol.Request{User: "system:node:a", Groups: []string{nodes, authenticated}, Verb: "patch", Resource: true, Plural: "nodes", Subresource: "status"}, "system-node-high", "node-high", "system:node:a"},
		{"a node's pods", flowcontrol.Request{User: "system:node:a", Groups: []string{nodes, authenticated}, Verb: "list", Resource: true, Plural: "pods"}, "system-nodes", "system", "system:node:a"},
		{"a controller", flowcontrol.Request{User: controllerManager, Groups: known, Verb: "create", Resource: true, Plural: "pods", Namespace: "shop"}, "kube-controller-manager", "workload-high", "shop"},
		{"an account of the system", flowcontrol.Request{User: "system:serviceaccount:kube-system:dns", Groups: account, Verb: "list", Resource: true, Plural: "pods"}, "kube-system-service-accounts", "workload-high", ""},
		{"an account of a namespace with a similar name", flowcontrol.Request{User: "system:serviceaccount:kube-system2:dns", Groups: account, Verb: "list", Resource: true, Plural: "pods"}, "service-accounts", "workload-low", "system:serviceaccount:kube-system2:dns"},
		{"an account", flowcontrol.Request{User: "system:serviceaccount:shop:web", Groups: account, Verb: "get", Path: "/api/v1"}, "service-accounts", "workload-low", "system:serviceaccount:shop:web"},
		{"a person", flowcontrol.Request{User: "alice", Groups: known, Verb: "delete", Resource: true, Plural: "pods", Namespace: "shop"}, "global-default", "global-default", "alice"},
		{"a user without groups", flowcontrol.Request{User: "nobody", Verb: "get", Path: "/api"}, "catch-all", "catch-all", "nobody"},
	} {
		seat := &flowcontrol.Seat{Request: test.r}
		if _, ok := c.Enter(t.Context(), seat); !ok {
			t.Errorf("%s: rejected", test.name)
		}
		if schema, level, flow := seat.Classified(); schema != test.schema || level != test.level || flow != test.flow {
			t.Errorf("%s: schema %s, level %s, flow %q; want %s, %s, %q", test.name, schema, level, flow, test.schema, test.level, test.flow)
		}
		seat.Leave()
	}
}

// TestMatching: what a FlowSchema matches, by its subjects of all kinds and its rules.
func TestMatching(t *testing.T) {
	user := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}}
	}
	group := func(name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}}
	}
	account := func(namespace, name string) flowcontrolv1.Subject {
		return flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: namespace, Name: name}}
	}
	star := []string{"*"}
	anyPath := []flowcontrolv1.NonResourcePolicyRule{{Verbs: star, NonResourceURLs: star}}
	version := flowcontrol.Request{User: "alice", Groups: []string{authenticated, "staff"}, Verb: "get", Path: "/version"}
	robot := flowcontrol.Request{User: "system:serviceaccount:shop:robot", Groups: []string{authenticated}, Verb: "get", Path: "/version"}
	pods := flowcontrol.Request{User: "alice", Verb: "list", Resource: true, Plural: "pods", Namespace: "shop"}
	allPods := pods
	allPods.Namespace = ""
	podStatus := pods
	podStatus.Verb, podStatus.Subresource = "update", "status"
	for name, test := range map[string]struct {
		rule flowcontrolv1.PolicyRulesWithSubjects
		r    flowcontrol.Request
		want bool
	}{
		"a user":                   {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("bob"), user("alice")}, NonResourceRules: anyPath}, version, true},
		"another user":             {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("bob")}, NonResourceRules: anyPath}, version, false},
		"any user":                 {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, NonResourceRules: anyPath}, version, true},
		"a group":                  {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{group("staff")}, NonResourceRules: anyPath}, version, true},
		"another group":            {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{group("guests")}, NonResourceRules: anyPath}, version, false},
		"any group":                {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{group("*")}, NonResourceRules: anyPath}, flowcontrol.Request{User: "x", Verb: "get", Path: "/"}, true},
		"an account":               {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{account("shop", "robot")}, NonResourceRules: anyPath}, robot, true},
		"another account":          {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{account("shop", "web")}, NonResourceRules: anyPath}, robot, false},
		"any account":              {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{account("shop", "*")}, NonResourceRules: anyPath}, robot, true},
		"accounts elsewhere":       {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{account("sho", "*")}, NonResourceRules: anyPath}, robot, false},
		"a user is no account":     {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{account("shop", "*")}, NonResourceRules: anyPath}, version, false},
		"a kind without its name":  {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser}}, NonResourceRules: anyPath}, version, false},
		"no subject":               {flowcontrolv1.PolicyRulesWithSubjects{NonResourceRules: anyPath}, version, false},
		"a verb":                   {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"post"}, NonResourceURLs: star}}}, version, false},
		"a path below":             {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: star, NonResourceURLs: []string{"/apis/*"}}}}, flowcontrol.Request{User: "a", Verb: "get", Path: "/apis/apps"}, true},
		"a path beside":            {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: star, NonResourceURLs: []string{"/apis/*"}}}}, flowcontrol.Request{User: "a", Verb: "get", Path: "/apis"}, false},
		"paths are no resources":   {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, NonResourceRules: anyPath}, pods, false},
		"a resource":               {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: []string{""}, Resources: []string{"nodes", "pods"}, Namespaces: star}}}, pods, true},
		"another group's resource": {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: []string{"apps"}, Resources: star, Namespaces: star}}}, pods, false},
		"a namespace":              {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: star, Namespaces: []string{"shop"}}}}, pods, true},
		"another namespace":        {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: star, ClusterScope: true, Namespaces: []string{"web"}}}}, pods, false},
		"no namespace":             {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: star, Namespaces: star}}}, allPods, false},
		"the whole cluster":        {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: star, ClusterScope: true}}}, allPods, true},
		"a subresource":            {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: []string{"pods/status"}, Namespaces: star}}}, podStatus, true},
		"not the resource itself":  {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: []string{"pods/status"}, Namespaces: star}}}, pods, false},
		"not its subresources":     {flowcontrolv1.PolicyRulesWithSubjects{Subjects: []flowcontrolv1.Subject{user("*")}, ResourceRules: []flowcontrolv1.ResourcePolicyRule{{Verbs: star, APIGroups: star, Resources: []string{"pods"}, Namespaces: star}}}, podStatus, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := flowcontrol.New(flowcontrol.Options{ReadOnly: 10})
			levels, _ := Defaults()
			c.Configure(levels, []flowcontrol.Schema{schemaOf(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 5,
				PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "global-default"}, Rules: []flowcontrolv1.PolicyRulesWithSubjects{test.rule}}})})
			seat := &flowcontrol.Seat{Request: test.r}
			c.Enter(t.Context(), seat)
			if got, _, _ := seat.Classified(); (got == "mine") != test.want {
				t.Errorf("the request is classified by %s", got)
			}
			seat.Leave()
		})
	}
}

// BenchmarkEnter measures Enter and Leave with the default configuration while there are free seats.
func BenchmarkEnter(b *testing.B) {
	for name, r := range map[string]flowcontrol.Request{
		"exempt":  {User: "admin", Groups: []string{masters, authenticated}, Verb: "get", Resource: true, Plural: "pods", Namespace: "default"},
		"account": {User: "system:serviceaccount:shop:web", Groups: []string{serviceAccounts, serviceAccounts + ":shop", authenticated}, Verb: "get", Resource: true, Plural: "pods", Namespace: "default"},
		"person":  {User: "alice", Groups: []string{authenticated}, Verb: "get", Resource: true, Plural: "pods", Namespace: "default"},
	} {
		b.Run(name, func(b *testing.B) {
			c := newController()
			b.ReportAllocs()
			var seat flowcontrol.Seat
			for b.Loop() {
				seat = flowcontrol.Seat{Request: r}
				c.Enter(context.Background(), &seat)
				seat.Leave()
			}
		})
	}
}

// store is a Store in memory.
type store struct {
	mu        sync.Mutex
	objects   map[string]catalog.Object
	followers map[schema.GroupResource]func(before, after catalog.Object)
	statuses  map[string]int // writes by name
	written   chan string    // what was written
}

func newStore() *store {
	return &store{objects: map[string]catalog.Object{}, followers: map[schema.GroupResource]func(before, after catalog.Object){}, statuses: map[string]int{}, written: make(chan string, 1000)}
}

func (s *store) Follow(resource schema.GroupResource, changed func(before, after catalog.Object)) {
	s.followers[resource] = changed
}

func (s *store) put(o catalog.Object) {
	s.mu.Lock()
	before := s.objects[key(o)]
	s.objects[key(o)] = o
	s.mu.Unlock()
	s.followers[resourceOf(o)](before, o)
}

func (s *store) get(o catalog.Object) catalog.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[key(o)]
}

func (s *store) remove(o catalog.Object) {
	s.mu.Lock()
	before := s.objects[key(o)]
	delete(s.objects, key(o))
	s.mu.Unlock()
	s.followers[resourceOf(o)](before, nil)
}

func (s *store) Create(ctx context.Context, _ schema.GroupResource, obj catalog.Object) error {
	return s.CreateAs(ctx, "", obj)
}

func (s *store) CreateAs(_ context.Context, _ string, obj catalog.Object) error {
	if s.get(obj) != nil {
		return apierrors.NewAlreadyExists(resourceOf(obj), obj.GetName())
	}
	obj.SetGeneration(1)
	s.put(obj)
	s.written <- "create " + key(obj)
	return nil
}

func (s *store) Update(context.Context, schema.GroupResource, string, string, string, func(catalog.Object) error) error {
	panic("not used")
}

func (s *store) UpdateAs(_ context.Context, resource schema.GroupResource, _, name string, change func(catalog.Object) error) error {
	s.mu.Lock()
	o := s.objects[resource.Resource+" "+name]
	s.mu.Unlock()
	if o == nil {
		return apierrors.NewNotFound(resource, name)
	}
	o = o.DeepCopyObject().(catalog.Object)
	if err := change(o); err != nil {
		return err
	}
	s.put(o)
	s.written <- "update " + key(o)
	return nil
}

func (s *store) Delete(_ context.Context, resource schema.GroupResource, _, name string, _ types.UID) error {
	s.mu.Lock()
	o := s.objects[resource.Resource+" "+name]
	s.mu.Unlock()
	s.remove(o)
	s.written <- "delete " + key(o)
	return nil
}

func (s *store) ApplyStatus(_ context.Context, name, _ string, status *flowcontrolv1.FlowSchemaStatus) error {
	o, ok := s.get(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}).(*flowcontrolv1.FlowSchema)
	if !ok {
		return apierrors.NewNotFound(schemaResource, name)
	}
	o = o.DeepCopy()
	o.Status = *status
	s.mu.Lock()
	s.statuses[name]++
	s.mu.Unlock()
	s.put(o)
	s.written <- "status " + name
	return nil
}

// wait waits until something was written, and returns what else was written before.
func (s *store) wait(t *testing.T, what string) (before []string) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case got := <-s.written:
			if got == what {
				return before
			}
			before = append(before, got)
		case <-timeout:
			t.Fatalf("no %s, but %q", what, before)
		}
	}
}

// run runs a loop on the objects that a new cluster has, until the test ends.
func run(t *testing.T, change func(*store)) (*store, *flowcontrol.Controller, *clocktesting.FakeClock) {
	s, clock := newStore(), clocktesting.NewFakeClock(time.Now())
	c := flowcontrol.New(flowcontrol.Options{ReadOnly: 400, Mutating: 200})
	loop := New(Options{Store: s, Controller: c, Clock: clock, Log: slog.New(slog.DiscardHandler)})
	for _, o := range append(catalogflowcontrol.Mandatory(), catalogflowcontrol.Suggested()...) {
		if err := Bootstrap(t.Context(), s, o); err != nil {
			t.Fatal(err)
		}
	}
	if change != nil {
		change(s)
	}
	loop.Sync()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { loop.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return s, c, clock
}

func mine(level string) *flowcontrolv1.FlowSchema {
	return &flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: "mine", UID: "s1"}, Spec: flowcontrolv1.FlowSchemaSpec{MatchingPrecedence: 5,
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
		Rules: []flowcontrolv1.PolicyRulesWithSubjects{{Subjects: []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: "alice"}}},
			NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: []string{"*"}, NonResourceURLs: []string{"*"}}}}}}}
}

func myLevel() *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "mine", UID: "l1"}, Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type: flowcontrolv1.PriorityLevelEnablementLimited, Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: ptr.To[int32](5),
			LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject}}}}
}

func classify(c *flowcontrol.Controller, user string) (schema, level string) {
	seat := &flowcontrol.Seat{Request: flowcontrol.Request{User: user, Groups: []string{authenticated}, Verb: "get", Path: "/version"}}
	c.Enter(context.Background(), seat)
	schema, level, _ = seat.Classified()
	seat.Leave()
	return schema, level
}

func condition(s *store, name string) flowcontrolv1.FlowSchemaCondition {
	o, _ := s.get(&flowcontrolv1.FlowSchema{ObjectMeta: metav1.ObjectMeta{Name: name}}).(*flowcontrolv1.FlowSchema)
	if o == nil || len(o.Status.Conditions) != 1 {
		return flowcontrolv1.FlowSchemaCondition{}
	}
	return o.Status.Conditions[0]
}

// TestDangling: a schema applies while its level exists, and its status says whether it does.
func TestDangling(t *testing.T) {
	s, c, _ := run(t, nil)
	s.put(mine("mine"))
	s.wait(t, "status mine")
	if got := condition(s, "mine"); got.Status != flowcontrolv1.ConditionTrue || got.Reason != "NotFound" || got.LastTransitionTime.IsZero() ||
		got.Message != `This FlowSchema references the PriorityLevelConfiguration object named "mine" but there is no such object` {
		t.Errorf("without the level: %+v", got)
	}
	if schema, _ := classify(c, "alice"); schema != "global-default" {
		t.Errorf("a schema without a level applies: %s", schema)
	}
	s.put(myLevel())
	s.wait(t, "status mine")
	if got := condition(s, "mine"); got.Status != flowcontrolv1.ConditionFalse || got.Reason != "Found" || got.Message != `This FlowSchema references the PriorityLevelConfiguration object named "mine" and it exists` {
		t.Errorf("with the level: %+v", got)
	}
	if schema, level := classify(c, "alice"); schema != "mine" || level != "mine" {
		t.Errorf("alice's request is classified by %s, %s", schema, level)
	}
	if got := condition(s, "global-default"); got.Status != flowcontrolv1.ConditionFalse {
		t.Errorf("a schema of every cluster: %+v", got)
	}
	s.remove(myLevel())
	s.wait(t, "status mine")
	if schema, _ := classify(c, "alice"); schema != "global-default" {
		t.Errorf("after the level was deleted: %s", schema)
	}
}

// TestFighting: a status that somebody else changes all the time is written only a few times in a minute.
func TestFighting(t *testing.T) {
	s, _, clock := run(t, nil)
	spoilt := func() {
		o := mine("global-default")
		o.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{{Type: flowcontrolv1.FlowSchemaConditionDangling, Status: flowcontrolv1.ConditionTrue}}
		s.put(o)
	}
	for range maxWrites {
		spoilt()
		s.wait(t, "status mine")
	}
	spoilt()
	other := mine("global-default")
	other.Name = "other"
	s.put(other)
	if before := s.wait(t, "status other"); slices.Contains(before, "status mine") {
		t.Error("the status was written once too often")
	}
	for deadline := time.Now().Add(10 * time.Second); condition(s, "mine").Status != flowcontrolv1.ConditionFalse; clock.Step(30 * time.Second) {
		if time.Now().After(deadline) {
			t.Fatal("the status is not written again")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestRestore: what becomes of the objects that every cluster has when they are changed.
func TestRestore(t *testing.T) {
	level := func(name string) *flowcontrolv1.PriorityLevelConfiguration {
		for _, o := range append(catalogflowcontrol.Mandatory(), catalogflowcontrol.Suggested()...) {
			if l, ok := o.(*flowcontrolv1.PriorityLevelConfiguration); ok && l.Name == name {
				l.Generation = 2
				return l
			}
		}
		panic(name)
	}
	changed := func(name string, shares int32, auto string) *flowcontrolv1.PriorityLevelConfiguration {
		l := level(name)
		l.Spec.Limited.NominalConcurrencyShares = &shares
		l.Annotations = map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: auto}
		if auto == "" {
			l.Annotations = nil
		}
		return l
	}
	exempt := level("exempt")
	exempt.Spec.Exempt.NominalConcurrencyShares = ptr.To[int32](7)
	unchanged := changed("leader-election", 10, "")
	unchanged.Generation = 1
	gone := myLevel()
	gone.Name, gone.Annotations = "of-another-version", map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}
	s, _, clock := run(t, func(s *store) {
		s.put(changed("catch-all", 9, "false"))     // mandatory: restored whatever it says
		s.put(changed("workload-low", 9, "true"))   // restored
		s.put(changed("workload-high", 9, "false")) // the administrator's
		s.put(changed("global-default", 9, ""))     // the administrator's, as it was changed
		s.put(unchanged)                            // restored, annotation and all
		s.put(exempt)                               // may be changed
		s.put(gone)                                 // deleted
		s.put(myLevel())                            // the administrator's own
		s.remove(level("system"))                   // created again
	})
	shares := func(name string) int32 {
		o, _ := s.get(level(name)).(*flowcontrolv1.PriorityLevelConfiguration)
		if o == nil {
			return -1
		}
		if o.Spec.Exempt != nil {
			return *o.Spec.Exempt.NominalConcurrencyShares
		}
		return *o.Spec.Limited.NominalConcurrencyShares
	}
	s.wait(t, "delete prioritylevelconfigurations of-another-version")
	for name, want := range map[string]int32{"catch-all": 5, "workload-low": 100, "workload-high": 9, "global-default": 9, "leader-election": 10, "exempt": 7, "system": 30} {
		if got := shares(name); got != want {
			t.Errorf("%s has %d shares, want %d", name, got, want)
		}
	}
	for name, want := range map[string]string{"catch-all": "true", "workload-high": "false", "global-default": "false", "leader-election": "true"} {
		if got := s.get(level(name)).GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]; got != want {
			t.Errorf("the annotation of %s says %q, want %q", name, got, want)
		}
	}
	if s.get(myLevel()) == nil {
		t.Error("an administrator's level was deleted")
	}
	s.remove(level("exempt"))
	for deadline := time.Now().Add(10 * time.Second); shares("exempt") < 0; clock.Step(time.Minute) {
		if time.Now().After(deadline) {
			t.Fatal("a mandatory level is not created again")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestInvalid: objects that validation refuses, but that may be in a store, are ignored.
func TestInvalid(t *testing.T) {
	for name, change := range map[string]func(*flowcontrolv1.PriorityLevelConfiguration){
		"no limits": func(l *flowcontrolv1.PriorityLevelConfiguration) { l.Spec.Limited = nil },
		"exempt": func(l *flowcontrolv1.PriorityLevelConfiguration) {
			l.Spec.Type = flowcontrolv1.PriorityLevelEnablementExempt
		},
		"a queue without one": func(l *flowcontrolv1.PriorityLevelConfiguration) {
			l.Spec.Limited.LimitResponse.Type = flowcontrolv1.LimitResponseTypeQueue
		},
		"lends too much": func(l *flowcontrolv1.PriorityLevelConfiguration) { l.Spec.Limited.LendablePercent = ptr.To[int32](101) },
	} {
		l := myLevel()
		change(l)
		if _, err := levelOf(l); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
