package why

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"skiff/internal/client"
	"skiff/internal/journey"
)

// Explain says why an object is as it is, in lines: sentences, with their details indented below them. The kind may be spelled as for kubectl.
func Explain(ctx context.Context, c *client.Client, kind, namespace, name string, now time.Time) ([]string, error) {
	s := &subject{api: c, now: now, kind: kind, name: name}
	var err error
	if s.tree, _, err = c.Journey(ctx, kind, namespace, name); err != nil {
		return nil, err
	}
	s.namespace = s.tree.Namespace
	s.failures = slices.Clone(s.tree.Failures)
	s.addIgnored()
	if err := s.read(ctx); err != nil {
		return nil, err
	}
	var lines []string
	for _, f := range s.findings() {
		lines = append(lines, f.lines()...)
	}
	if s.pod != nil {
		return podFacts{pod: s.pod, tree: s.tree, events: s.events, findings: lines}.explain(now), nil
	}
	if len(lines) == 0 {
		return []string{s.tree.Title() + ": nothing is known that refused it, failed it or keeps it waiting; skiff journey " + kind + "/" + name + " shows what happened."}, nil
	}
	return lines, nil
}

// subject is what is to be explained, with everything that is known about it.
type subject struct {
	api                   *client.Client
	now                   time.Time
	kind, namespace, name string // kind as the user spelled it
	tree                  *journey.Tree
	// failures are those of the object and of what controllers make for it, the last first.
	failures []journey.Failure
	events   []corev1.Event

	// What follows depends on the kind.
	pod         *corev1.Pod // nil if it does not exist
	workload    *workload
	namespaceIs *corev1.Namespace
	configured  []string     // InitializerConfigurations that name the initializer which the object waits for
	apis        []apiService // of an APIService itself; of a namespace that is being removed, those that are unavailable
}

// kinds are the resources of which more is read than their journey.
var kinds = map[string]func(*subject, context.Context) error{
	"pods":                               (*subject).readPod,
	"replicationcontrollers":             (*subject).readWorkload,
	"deployments.apps":                   (*subject).readWorkload,
	"replicasets.apps":                   (*subject).readWorkload,
	"statefulsets.apps":                  (*subject).readWorkload,
	"daemonsets.apps":                    (*subject).readWorkload,
	"jobs.batch":                         (*subject).readWorkload,
	"namespaces":                         (*subject).readNamespace,
	"apiservices.apiregistration.k8s.io": (*subject).readAPIService,
}

func (s *subject) read(ctx context.Context) error {
	if len(s.tree.Pending) > 0 {
		return s.readConfigurations(ctx)
	}
	if read := kinds[s.tree.Resource]; read != nil {
		return read(s, ctx)
	}
	return nil
}

// A finding is a reason why the subject is as it is.
type finding struct {
	sentence string
	evidence []string
}

func (f finding) lines() []string {
	lines := []string{f.sentence}
	for _, e := range f.evidence {
		lines = append(lines, "  "+e)
	}
	return lines
}

// A cause finds one kind of reason in a subject.
type cause struct {
	name string // for tests
	find func(*subject) []finding
}

// causes are all that is known, those that explain most first.
var causes = []cause{
	{"an initializer has not acted", waitsForInitializer},
	{"a webhook refused", failed(byWebhook, journey.Denied)},
	{"a webhook failed and refused", failed(byWebhook, journey.Failed)},
	{"a policy refused", failed(byPolicy, journey.Denied)},
	{"a policy failed and refused", failed(byPolicy, journey.Failed)},
	{"an Event tells of a refusal", toldByEvents},
	{"a webhook failed and was ignored", failed(byWebhook, journey.FailedOpen)},
	{"a policy failed and was ignored", failed(byPolicy, journey.FailedOpen)},
	{"a conversion webhook fails", failed(byConversion, journey.Failed)},
	{"an aggregated API is unavailable", unavailable},
	{"a namespace waits for an aggregated API", waitsForAPI},
	{"a webhook or policy changed it", changed},
}

// maxFindings bounds what is said of one cause.
const maxFindings = 5

func (s *subject) findings() (all []finding) {
	for _, c := range causes {
		found := c.find(s)
		all = append(all, found[:min(len(found), maxFindings)]...)
	}
	return all
}
