package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/catalog"
)

// Mandatory returns the levels and schemas that always exist unchanged: the server restores them.
func Mandatory() []catalog.Object {
	return []catalog.Object{
		catchAllLevel(),
		exemptLevel(),
		schema("exempt", "exempt", 1, "", groups("system:masters"), everything()),
		schema("catch-all", "catch-all", 10000, byUser, anyone(), everything()),
	}
}

// Suggested returns the further levels and schemas that a cluster starts with. The server creates the missing ones, and
// updates those that carry the annotation apf.kubernetes.io/autoupdate-spec=true; an administrator may change or
// delete them.
func Suggested() []catalog.Object {
	nodes := groups("system:nodes")
	kubeSystem := []flowcontrolv1.Subject{{Kind: flowcontrolv1.SubjectKindServiceAccount,
		ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: metav1.NamespaceSystem, Name: "*"}}}
	managers := users("system:kube-controller-manager", "system:kube-scheduler")
	leases := []string{"coordination.k8s.io"}
	return []catalog.Object{
		queuedLevel("system", 30, 33, 64, 6),
		queuedLevel("node-high", 40, 25, 64, 6),
		queuedLevel("leader-election", 10, 0, 16, 4),
		queuedLevel("workload-high", 40, 50, 128, 6),
		queuedLevel("workload-low", 100, 90, 128, 6),
		queuedLevel("global-default", 20, 50, 128, 6),

		schema("system-nodes", "system", 500, byUser, nodes, everything()),
		schema("system-node-high", "node-high", 400, byUser, nodes, rules{resources: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: all(), APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, ClusterScope: true, Namespaces: all()},
			{Verbs: all(), APIGroups: leases, Resources: []string{"leases"}, Namespaces: all()},
		}}),
		schema("probes", "exempt", 2, "", anyone(), rules{urls: []flowcontrolv1.NonResourcePolicyRule{
			{Verbs: []string{"get"}, NonResourceURLs: []string{"/healthz", "/readyz", "/livez"}},
		}}),
		schema("system-leader-election", "leader-election", 100, byUser, append(managers, kubeSystem...), rules{resources: []flowcontrolv1.ResourcePolicyRule{
			{Verbs: []string{"get", "create", "update"}, APIGroups: leases, Resources: []string{"leases"}, Namespaces: all()},
		}}),
		schema("kube-controller-manager", "workload-high", 800, byNamespace, users("system:kube-controller-manager"), everything()),
		schema("kube-scheduler", "workload-high", 800, byNamespace, users("system:kube-scheduler"), everything()),
		schema("kube-system-service-accounts", "workload-high", 900, byNamespace, kubeSystem, everything()),
		schema("service-accounts", "workload-low", 9000, byUser, groups("system:serviceaccounts"), everything()),
		schema("global-default", "global-default", 9900, byUser, anyone(), everything()),
	}
}

const (
	byUser      = flowcontrolv1.FlowDistinguisherMethodByUserType
	byNamespace = flowcontrolv1.FlowDistinguisherMethodByNamespaceType
)

// rules are the requests that a bootstrap schema matches: for resources, and for other paths.
type rules struct {
	resources []flowcontrolv1.ResourcePolicyRule
	urls      []flowcontrolv1.NonResourcePolicyRule
}

func everything() rules {
	return rules{
		resources: []flowcontrolv1.ResourcePolicyRule{{Verbs: all(), APIGroups: all(), Resources: all(), ClusterScope: true, Namespaces: all()}},
		urls:      []flowcontrolv1.NonResourcePolicyRule{{Verbs: all(), NonResourceURLs: all()}},
	}
}

func all() []string { return []string{"*"} }

func anyone() []flowcontrolv1.Subject {
	return groups("system:unauthenticated", "system:authenticated")
}

func groups(names ...string) []flowcontrolv1.Subject {
	var subjects []flowcontrolv1.Subject
	for _, name := range names {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: name}})
	}
	return subjects
}

func users(names ...string) []flowcontrolv1.Subject {
	var subjects []flowcontrolv1.Subject
	for _, name := range names {
		subjects = append(subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: name}})
	}
	return subjects
}

func schema(name, level string, precedence int32, flow flowcontrolv1.FlowDistinguisherMethodType, who []flowcontrolv1.Subject, what rules) *flowcontrolv1.FlowSchema {
	s := &flowcontrolv1.FlowSchema{ObjectMeta: autoUpdated(name), Spec: flowcontrolv1.FlowSchemaSpec{
		PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: level},
		MatchingPrecedence:         precedence,
		Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{{Subjects: who, ResourceRules: what.resources, NonResourceRules: what.urls}},
	}}
	if flow != "" {
		s.Spec.DistinguisherMethod = &flowcontrolv1.FlowDistinguisherMethod{Type: flow}
	}
	return s
}

func exemptLevel() *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: autoUpdated("exempt"), Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type:   flowcontrolv1.PriorityLevelEnablementExempt,
		Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: new(int32), LendablePercent: new(int32)},
	}}
}

// catchAllLevel returns the level with the smallest share and no queue: no request should end there.
func catchAllLevel() *flowcontrolv1.PriorityLevelConfiguration {
	return limitedLevel("catch-all", 5, 0, flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject})
}

func queuedLevel(name string, shares, lendable, queues, hand int32) *flowcontrolv1.PriorityLevelConfiguration {
	return limitedLevel(name, shares, lendable, flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeQueue,
		Queuing: &flowcontrolv1.QueuingConfiguration{Queues: queues, HandSize: hand, QueueLengthLimit: 50}})
}

func limitedLevel(name string, shares, lendable int32, response flowcontrolv1.LimitResponse) *flowcontrolv1.PriorityLevelConfiguration {
	return &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: autoUpdated(name), Spec: flowcontrolv1.PriorityLevelConfigurationSpec{
		Type:    flowcontrolv1.PriorityLevelEnablementLimited,
		Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{NominalConcurrencyShares: &shares, LendablePercent: &lendable, LimitResponse: response},
	}}
}

func autoUpdated(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Annotations: map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"}}
}

// mandatorySchema returns the mandatory schema of that name, or nil.
func mandatorySchema(name string) *flowcontrolv1.FlowSchema {
	return mandatory[*flowcontrolv1.FlowSchema](name)
}

// mandatoryLevel returns the mandatory level of that name, or nil.
func mandatoryLevel(name string) *flowcontrolv1.PriorityLevelConfiguration {
	return mandatory[*flowcontrolv1.PriorityLevelConfiguration](name)
}

func mandatory[T catalog.Object](name string) (none T) {
	for _, o := range Mandatory() {
		if object, ok := o.(T); ok && o.GetName() == name {
			return object
		}
	}
	return none
}
