package config

import (
	"errors"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/flowcontrol"
)

const (
	defaultShares      = 30
	defaultQueues      = 64
	defaultHandSize    = 8
	defaultQueueLength = 50
)

// levelOf returns the level that an object describes. It fails if the object is one that validation refuses, as may be in a store that others have written.
func levelOf(o *flowcontrolv1.PriorityLevelConfiguration) (flowcontrol.Level, error) {
	l := flowcontrol.Level{Name: o.Name, UID: string(o.UID), Exempt: o.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt}
	exempt, limited := o.Spec.Exempt, o.Spec.Limited
	switch {
	case l.Exempt != (o.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt):
		return l, errors.New("only the level exempt is of the type Exempt")
	case l.Exempt:
		if exempt != nil {
			l.Shares, l.LendablePercent = int(ptr.Deref(exempt.NominalConcurrencyShares, 0)), int(ptr.Deref(exempt.LendablePercent, 0))
		}
		return l, nil
	case limited == nil:
		return l, errors.New("spec.limited is missing")
	}
	l.Shares, l.LendablePercent = int(ptr.Deref(limited.NominalConcurrencyShares, defaultShares)), int(ptr.Deref(limited.LendablePercent, 0))
	if p := limited.BorrowingLimitPercent; p != nil {
		l.BorrowingLimitPercent = ptr.To(int(*p))
	}
	queuing := limited.LimitResponse.Queuing
	if (limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue) != (queuing != nil) {
		return l, errors.New("spec.limited.limitResponse.queuing does not fit the type")
	}
	if queuing != nil {
		l.Queues, l.HandSize, l.QueueLength = orDefault(queuing.Queues, defaultQueues), orDefault(queuing.HandSize, defaultHandSize), orDefault(queuing.QueueLengthLimit, defaultQueueLength)
	}
	if l.Shares < 0 || l.LendablePercent < 0 || l.LendablePercent > 100 || l.Queues < 0 || l.HandSize < 0 || l.QueueLength < 0 {
		return l, errors.New("a number is out of its range")
	}
	return l, nil
}

func orDefault(n, value int32) int {
	if n == 0 {
		return int(value)
	}
	return int(n)
}

// schemaOf returns the schema that an object describes. What is not valid in it matches no request.
func schemaOf(o *flowcontrolv1.FlowSchema) flowcontrol.Schema {
	s := flowcontrol.Schema{Name: o.Name, UID: string(o.UID), Level: o.Spec.PriorityLevelConfiguration.Name, Precedence: int(o.Spec.MatchingPrecedence)}
	if d := o.Spec.DistinguisherMethod; d != nil {
		switch d.Type {
		case flowcontrolv1.FlowDistinguisherMethodByUserType:
			s.FlowBy = flowcontrol.FlowByUser
		case flowcontrolv1.FlowDistinguisherMethodByNamespaceType:
			s.FlowBy = flowcontrol.FlowByNamespace
		}
	}
	for i := range o.Spec.Rules {
		from := &o.Spec.Rules[i]
		var rule flowcontrol.Rule
		for j := range from.Subjects {
			if subject, ok := subjectOf(&from.Subjects[j]); ok {
				rule.Subjects = append(rule.Subjects, subject)
			}
		}
		for _, r := range from.ResourceRules {
			rule.Resources = append(rule.Resources, flowcontrol.ResourceRule{Verbs: r.Verbs, Groups: r.APIGroups, Resources: r.Resources, ClusterScope: r.ClusterScope, Namespaces: r.Namespaces})
		}
		for _, r := range from.NonResourceRules {
			rule.Paths = append(rule.Paths, flowcontrol.PathRule{Verbs: r.Verbs, Paths: r.NonResourceURLs})
		}
		s.Rules = append(s.Rules, rule)
	}
	return s
}

func subjectOf(s *flowcontrolv1.Subject) (flowcontrol.Subject, bool) {
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		return flowcontrol.Subject{User: s.User.Name}, s.User.Name != ""
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		return flowcontrol.Subject{Group: s.Group.Name}, s.Group.Name != ""
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil && s.ServiceAccount.Name == flowcontrolv1.NameAll:
		return flowcontrol.Subject{ServiceAccountNamespace: s.ServiceAccount.Namespace}, s.ServiceAccount.Namespace != ""
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		return flowcontrol.Subject{User: "system:serviceaccount:" + s.ServiceAccount.Namespace + ":" + s.ServiceAccount.Name}, true
	}
	return flowcontrol.Subject{}, false
}
