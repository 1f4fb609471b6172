package journey

import "strings"

// Attributes of spans within requests.
const (
	AttributeConfiguration = "configuration"
	AttributeWebhook       = "webhook"
	AttributePolicy        = "policy"
	AttributeBinding       = "binding"
	AttributeParam         = "param"
	AttributeVerdict       = "verdict"
	AttributeCost          = "cost" // what CEL expressions cost, in the units of their budget
	AttributeDefinition    = "definition"
	AttributeObjects       = "objects"
	AttributeFrom          = "from"
	AttributeTo            = "to"
	AttributeAPIService    = "apiservice"
	AttributeCode          = "code"
)

// called returns the name of what was called or evaluated within a request; empty for other work.
func (n *Node) called() string {
	for _, key := range []string{AttributeWebhook, AttributePolicy, AttributeDefinition, AttributeAPIService} {
		if name := n.Attribute(key); name != "" {
			return name
		}
	}
	return ""
}

// call returns the line of a call within a request; empty for other work.
func (n *Node) call() string {
	name := n.called()
	if name == "" {
		return ""
	}
	s := n.Stage + " " + name
	switch n.Stage {
	case ConversionWebhook:
		s += " from " + n.Attribute(AttributeFrom) + " to " + n.Attribute(AttributeTo) + ", objects " + n.Attribute(AttributeObjects)
	case ValidationRules:
		s = n.Stage + " of " + name
	case AggregatedAPI:
		s += ": " + n.Attribute(AttributeCode)
	}
	var details []string
	for _, key := range []string{AttributeConfiguration, AttributeBinding, AttributeParam} {
		if v := n.Attribute(key); v != "" {
			details = append(details, key+" "+v)
		}
	}
	if cost := n.Attribute(AttributeCost); cost != "" {
		details = append(details, "CEL cost "+cost)
	}
	if len(details) > 0 {
		s += " (" + strings.Join(details, ", ") + ")"
	}
	if verdict := n.Attribute(AttributeVerdict); verdict != "" {
		s += ": " + verdict
	}
	if n.Error != "" {
		s += ": " + n.Error
	}
	return s
}
