package pod

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

const (
	maxRestartRules       = 20
	maxExitCodesOfOneRule = 255

	notForInitContainers = "may not be set for init containers without restartPolicy=Always"
	notForEphemeral      = "cannot be set for an Ephemeral Container"
)

// Values of fields, in the order in which error messages list them.
var (
	pullPolicies        = []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}
	terminationPolicies = []corev1.TerminationMessagePolicy{corev1.TerminationMessageReadFile, corev1.TerminationMessageFallbackToLogsOnError}
	protocols           = []corev1.Protocol{corev1.ProtocolSCTP, corev1.ProtocolTCP, corev1.ProtocolUDP}
	resizableResources  = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	resizePolicies      = []corev1.ResourceResizeRestartPolicy{corev1.NotRequired, corev1.RestartContainer}
	containerPolicies   = []corev1.ContainerRestartPolicy{corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever, corev1.ContainerRestartPolicyOnFailure}
	restartActions      = []corev1.ContainerRestartRuleAction{corev1.ContainerRestartRuleActionRestart, corev1.ContainerRestartRuleActionRestartAllContainers}
	exitCodeOperators   = []corev1.ContainerRestartRuleOnExitCodesOperator{corev1.ContainerRestartRuleOnExitCodesOpIn, corev1.ContainerRestartRuleOnExitCodesOpNotIn}
)

func (r *rules) regularContainers(p *check.Part) {
	list := r.spec.Containers
	if len(list) == 0 {
		p.Required("containers", "")
		return
	}
	for i := range list {
		c, at := &list[i], p.Item("containers", i)
		r.container(at, c)
		if named(list[:i], c.Name) {
			at.Add(field.Duplicate(at.Path("name"), c.Name))
		}
		r.lifecycle(at, c)
		restartRules(at, c)
	}
	uniqueHostPorts(p, "containers", list)
}

func (r *rules) initContainers(p *check.Part) {
	list := r.spec.InitContainers
	for i := range list {
		c, at := &list[i], p.Item("initContainers", i)
		r.container(at, c)
		if c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0 {
			initRestartRules(at, c)
		}
		if named(r.spec.Containers, c.Name) || c.Name != "" && named(list[:i], c.Name) {
			at.Add(field.Duplicate(at.Path("name"), c.Name))
		}
		uniqueHostPorts(p, "initContainers", list[i:i+1]) // one by one: they never run together
		if isSidecar(c) {
			r.lifecycle(at, c)
			continue
		}
		forbidLifecycle(at, c, notForInitContainers)
		for j, policy := range c.ResizePolicy {
			if policy.RestartPolicy == corev1.RestartContainer && !r.allow.initContainerRestart {
				at.Item("resizePolicy", j).Invalid("restartPolicy", policy.RestartPolicy, "must not be set to 'RestartContainer' for non-sidecar initContainers")
			}
		}
	}
}

func (r *rules) ephemeralContainers(p *check.Part) {
	list := r.spec.EphemeralContainers
	for i := range list {
		c, at := plain(&list[i]), p.Item("ephemeralContainers", i)
		r.container(at, c)
		trimmedImage(at, c)
		if named(r.spec.Containers, c.Name) || named(r.spec.InitContainers, c.Name) || ephemeralNamed(list[:i], c.Name) {
			at.Add(field.Duplicate(at.Path("name"), c.Name))
		}
		if t := list[i].TargetContainerName; t != "" && !named(r.spec.Containers, t) && !named(r.spec.InitContainers, t) {
			at.Add(field.NotFound(at.Path("targetContainerName"), t))
		}
		onlyForDebugging(at, c)
	}
}

// onlyForDebugging refuses what would make an ephemeral container a part of the workload.
func onlyForDebugging(p *check.Part, c *corev1.Container) {
	for _, f := range [...]struct {
		name string
		set  bool
	}{
		{"ports", c.Ports != nil},
		{"resources", c.Resources.Limits != nil || c.Resources.Requests != nil || c.Resources.Claims != nil},
		{"resizePolicy", c.ResizePolicy != nil},
		{"restartPolicy", c.RestartPolicy != nil},
		{"restartPolicyRules", c.RestartPolicyRules != nil},
		{"livenessProbe", c.LivenessProbe != nil},
		{"readinessProbe", c.ReadinessProbe != nil},
		{"startupProbe", c.StartupProbe != nil},
		{"lifecycle", c.Lifecycle != nil},
	} {
		if f.set {
			p.Forbidden(f.name, notForEphemeral)
		}
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath != "" {
			p.Item("volumeMounts", i).Forbidden("subPath", notForEphemeral)
		}
		if m.SubPathExpr != "" {
			p.Item("volumeMounts", i).Forbidden("subPathExpr", notForEphemeral)
		}
	}
}

// container validates what all kinds of containers have in common.
func (r *rules) container(p *check.Part, c *corev1.Container) {
	if c.Name == "" {
		p.Required("name", "")
	} else {
		p.Format("name", c.Name, utilvalidation.IsDNS1123Label)
	}
	if c.Image == "" {
		p.Required("image", "")
	}
	oneOfRequired(p, "terminationMessagePolicy", c.TerminationMessagePolicy, terminationPolicies)
	ports(p, c.Ports)
	r.env(p, c)
	r.mounts(p, c)
	r.devices(p, c)
	oneOfRequired(p, "imagePullPolicy", c.ImagePullPolicy, pullPolicies)
	r.resources(p.Child("resources"), &c.Resources, quantity.ContainerName)
	r.resizePolicy(p, c.ResizePolicy)
	if c.SecurityContext != nil {
		r.securityContext(p.Child("securityContext"), c.SecurityContext)
	}
}

// trimmedImage refuses spaces around the image of a pod's container. Templates may have them, as they always could.
func trimmedImage(p *check.Part, c *corev1.Container) {
	if strings.TrimSpace(c.Image) != c.Image {
		p.Invalid("image", c.Image, "must not have leading or trailing whitespace")
	}
}

func ports(p *check.Part, list []corev1.ContainerPort) {
	for i := range list {
		port, at := &list[i], p.Item("ports", i)
		if port.Name != "" {
			if msgs := utilvalidation.IsValidPortName(port.Name); len(msgs) > 0 {
				for _, msg := range msgs {
					at.Invalid("name", port.Name, msg)
				}
			} else if portNamed(list[:i], port.Name) {
				at.Add(field.Duplicate(at.Path("name"), port.Name))
			}
		}
		if port.ContainerPort == 0 {
			at.Required("containerPort", "")
		} else {
			portNumber(at, "containerPort", port.ContainerPort)
		}
		if port.HostPort != 0 {
			portNumber(at, "hostPort", port.HostPort)
		}
		oneOfRequired(at, "protocol", port.Protocol, protocols)
	}
}

func portNumber(p *check.Part, name string, port int32) {
	for _, msg := range utilvalidation.IsValidPortNum(int(port)) {
		p.Invalid(name, port, msg)
	}
}

// uniqueHostPorts refuses the same host port in two places. Indexes of containers are relative to the given list.
func uniqueHostPorts(p *check.Part, list string, containers []corev1.Container) {
	var seen map[string]bool
	for i := range containers {
		for j := range containers[i].Ports {
			port := &containers[i].Ports[j]
			if port.HostPort == 0 {
				continue
			}
			opening := fmt.Sprintf("%s/%s/%d", port.Protocol, port.HostIP, port.HostPort)
			if seen[opening] {
				at := p.Item(list, i).Item("ports", j)
				at.Add(field.Duplicate(at.Path("hostPort"), opening))
				continue
			}
			if seen == nil {
				seen = map[string]bool{}
			}
			seen[opening] = true
		}
	}
}

// hostNetworkPorts checks that the host ports of a container in the host's network equal its ports. In a template they may be
// missing, because they are defaulted when the pod is created.
func (r *rules) hostNetworkPorts(p *check.Part) {
	if !r.spec.HostNetwork {
		return
	}
	for i := range r.spec.Containers {
		for j, port := range r.spec.Containers[i].Ports {
			if port.HostPort != port.ContainerPort && (r.isPod() || port.HostPort != 0) {
				p.Item("containers", i).Item("ports", j).Invalid("hostPort", port.HostPort, "must match `containerPort` when `hostNetwork` is true")
			}
		}
	}
}

func (r *rules) resizePolicy(p *check.Part, list []corev1.ContainerResizePolicy) {
	for i, policy := range list {
		for _, before := range list[:i] {
			if before.ResourceName == policy.ResourceName {
				p.Add(field.Duplicate(p.Path("resizePolicy").Index(i), policy.ResourceName))
				break
			}
		}
		oneOfRequired(p, "resizePolicy", policy.ResourceName, resizableResources)
		oneOfRequired(p, "resizePolicy", policy.RestartPolicy, resizePolicies)
		if r.spec.RestartPolicy == corev1.RestartPolicyNever && policy.RestartPolicy != corev1.NotRequired {
			p.Invalid("resizePolicy", policy.RestartPolicy, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")
		}
	}
}

func initRestartRules(p *check.Part, c *corev1.Container) {
	if c.RestartPolicy == nil {
		p.Required("restartPolicy", "must specify restartPolicy when restart rules are used")
		return
	}
	restartRules(p, c)
}

// restartRules validates the restart policy of a container and its restart policy rules.
func restartRules(p *check.Part, c *corev1.Container) {
	rules := c.RestartPolicyRules
	switch {
	case c.RestartPolicy != nil:
		check.OneOf(p, "restartPolicy", *c.RestartPolicy, containerPolicies...)
	case len(rules) > 0:
		p.Required("restartPolicy", "must specify restartPolicy when restart rules are used")
	}
	if len(rules) > maxRestartRules {
		p.Add(field.TooMany(p.Path("restartPolicyRules"), len(rules), maxRestartRules))
	}
	for i := range rules {
		rule, at := &rules[i], p.Item("restartPolicyRules", i)
		check.OneOf(at, "action", rule.Action, restartActions...)
		if rule.ExitCodes == nil {
			at.Required("exitCodes", "must be specified")
			continue
		}
		at = at.Child("exitCodes")
		check.OneOf(at, "operator", rule.ExitCodes.Operator, exitCodeOperators...)
		if n := len(rule.ExitCodes.Values); n > maxExitCodesOfOneRule {
			at.Add(field.TooMany(at.Path("values"), n, maxExitCodesOfOneRule))
		}
	}
}

func named(list []corev1.Container, name string) bool {
	for i := range list {
		if list[i].Name == name {
			return true
		}
	}
	return false
}

func ephemeralNamed(list []corev1.EphemeralContainer, name string) bool {
	return slices.ContainsFunc(list, func(c corev1.EphemeralContainer) bool { return c.Name == name })
}

func portNamed(list []corev1.ContainerPort, name string) bool {
	return slices.ContainsFunc(list, func(p corev1.ContainerPort) bool { return p.Name == name })
}
