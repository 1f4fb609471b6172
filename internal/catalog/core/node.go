package core

import (
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/address"
	"skiff/internal/catalog/quantity"
)

var Node = catalog.Resource[corev1.Node]{
	Version: "v1", Kind: "Node", Plural: "nodes", Short: []string{"no"},
	EndsTokens:          true,
	Critical:            func(*corev1.Node) bool { return true },
	StorageName:         "minions",
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default:             defaultNode,
	PrepareCreate:       prepareNode,
	PrepareUpdate:       prepareNodeUpdate,
	Validate:            validateNode,
	ValidateUpdate: func(new, old *corev1.Node) field.ErrorList {
		return append(validateNode(new), validateNodeUpdate(new, old)...)
	},
	Warnings:       nodeWarnings,
	StatusOnCreate: true, // a kubelet registers its node with its status
	Status: &catalog.Edit[corev1.Node]{
		PrepareUpdate: func(new, old *corev1.Node) {
			if old.Status.Config == nil {
				new.Status.Config = nil
			}
		},
		ValidateUpdate: validateNodeUpdate,
	},
	Subresources: []catalog.Subresource{
		{Name: "proxy", Kind: "NodeProxyOptions", Verbs: []string{"create", "delete", "get", "patch", "update"}},
	},
	Fields: []catalog.Field[corev1.Node]{
		{Name: "spec.unschedulable", Value: func(n *corev1.Node) string { return strconv.FormatBool(n.Spec.Unschedulable) }},
	},
	Columns:  nodeColumns,
	Complete: true,
}

func defaultNode(n *corev1.Node) {
	defaultPodCIDRs(&n.Spec)
	if len(n.Status.Allocatable) == 0 && n.Status.Capacity != nil { // an empty one is stored as none
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	quantity.RoundUp(n.Status.Capacity)
	quantity.RoundUp(n.Status.Allocatable)
}

// defaultPodCIDRs keeps the older, single podCIDR and the list consistent. If they disagree, an old client wrote podCIDR
// without knowing the list.
func defaultPodCIDRs(spec *corev1.NodeSpec) {
	switch {
	case spec.PodCIDR == "" && len(spec.PodCIDRs) > 0:
		spec.PodCIDR = spec.PodCIDRs[0]
	case spec.PodCIDR != "" && (len(spec.PodCIDRs) == 0 || spec.PodCIDRs[0] != spec.PodCIDR):
		spec.PodCIDRs = []string{spec.PodCIDR}
	}
}

// prepareNode drops the removed dynamic kubelet configuration and what is still an alpha feature.
func prepareNode(n *corev1.Node, _ catalog.Request) {
	n.Spec.ConfigSource = nil
	n.Spec.PodPreemptionPolicy = nil
	n.Status.Config = nil
}

func prepareNodeUpdate(new, old *corev1.Node) {
	if old.Spec.ConfigSource == nil {
		new.Spec.ConfigSource = nil
	}
	if old.Spec.PodPreemptionPolicy == nil {
		new.Spec.PodPreemptionPolicy = nil
	}
}

func nodeWarnings(new, _ *corev1.Node) []string {
	var warnings []string
	if new.Spec.ConfigSource != nil {
		warnings = append(warnings, "spec.configSource: the feature is removed")
	}
	if new.Spec.DoNotUseExternalID != "" {
		warnings = append(warnings, "spec.externalID: this field is deprecated, and is unused by Kubernetes")
	}
	for i, cidr := range new.Spec.PodCIDRs {
		warnings = append(warnings, address.CIDRWarnings(cidr, field.NewPath("spec", "podCIDRs").Index(i))...)
	}
	return warnings
}

var (
	nodeInfoDoc = corev1.NodeSystemInfo{}.SwaggerDoc()
	addressDoc  = corev1.NodeStatus{}.SwaggerDoc()["addresses"]
)

var nodeColumns = []catalog.Column[corev1.Node]{
	catalog.NameColumn[corev1.Node](),
	{Name: "Status", Description: "The status of the node", Cell: nodeStatus},
	{Name: "Roles", Description: "The roles of the node", Cell: nodeRoles},
	catalog.AgeColumn[corev1.Node](),
	{Name: "Version", Description: nodeInfoDoc["kubeletVersion"],
		Cell: func(n *corev1.Node, _ time.Time) any { return n.Status.NodeInfo.KubeletVersion }},
	{Name: "Internal-IP", Description: addressDoc, Priority: 1,
		Cell: func(n *corev1.Node, _ time.Time) any { return nodeAddress(n, corev1.NodeInternalIP) }},
	{Name: "External-IP", Description: addressDoc, Priority: 1,
		Cell: func(n *corev1.Node, _ time.Time) any { return nodeAddress(n, corev1.NodeExternalIP) }},
	{Name: "OS-Image", Description: nodeInfoDoc["osImage"], Priority: 1,
		Cell: func(n *corev1.Node, _ time.Time) any { return either(n.Status.NodeInfo.OSImage, "<unknown>") }},
	{Name: "Kernel-Version", Description: nodeInfoDoc["kernelVersion"], Priority: 1, Cell: kernelVersion},
	{Name: "Container-Runtime", Description: nodeInfoDoc["containerRuntimeVersion"], Priority: 1,
		Cell: func(n *corev1.Node, _ time.Time) any {
			return either(n.Status.NodeInfo.ContainerRuntimeVersion, "<unknown>")
		}},
}

func nodeStatus(n *corev1.Node, _ time.Time) any {
	status := "Unknown"
	for _, condition := range n.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		status = "NotReady"
		if condition.Status == corev1.ConditionTrue {
			status = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles lists the roles that labels give a node: node-role.kubernetes.io/<role>, or the older kubernetes.io/role.
func nodeRoles(n *corev1.Node, _ time.Time) any {
	var roles []string
	for label, value := range n.Labels {
		role, ok := strings.CutPrefix(label, "node-role.kubernetes.io/")
		if !ok && label == "kubernetes.io/role" {
			role, ok = value, true
		}
		if ok && role != "" && !slices.Contains(roles, role) {
			roles = append(roles, role)
		}
	}
	slices.Sort(roles)
	return either(strings.Join(roles, ","), "<none>")
}

func nodeAddress(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return "<none>"
}

func kernelVersion(n *corev1.Node, _ time.Time) any {
	version := either(n.Status.NodeInfo.KernelVersion, "<unknown>")
	if arch := n.Status.NodeInfo.Architecture; arch != "" {
		version += " (" + arch + ")"
	}
	return version
}
