package node

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
	"skiff/internal/catalog/nodeselector"
	"skiff/internal/catalog/pod"
	"skiff/internal/catalog/quantity"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{RuntimeClass} }

// RuntimeClass declares runtime classes: a handler of the container runtime, its overhead, and the nodes that have it.
var RuntimeClass = catalog.Resource[nodev1.RuntimeClass]{
	Group: "node.k8s.io", Version: "v1", Kind: "RuntimeClass", Plural: "runtimeclasses",
	AnyFinalizer:   true,
	Name:           validation.NameIsDNSSubdomain,
	CreateOnUpdate: true,
	Validate: func(c *nodev1.RuntimeClass) field.ErrorList {
		at := check.At(nil)
		checkClass(at, c)
		checkHandler(at, c.Handler, content.IsDNS1123Label)
		return at.Errors()
	},
	ValidateUpdate: func(new, old *nodev1.RuntimeClass) field.ErrorList {
		at := check.At(nil)
		changed := new.Handler != old.Handler
		if changed && new.Handler != "" {
			checkHandler(at, new.Handler, utilvalidation.IsDNS1123Label)
		}
		checkClass(at, new)
		if changed {
			at.Invalid("handler", nil, validation.FieldImmutableErrorMsg)
			at.Present("handler", new.Handler != "", "")
		}
		return at.Errors()
	},
	Warnings: warnings,
	Columns: []catalog.Column[nodev1.RuntimeClass]{
		catalog.NameColumn[nodev1.RuntimeClass](),
		{Name: "Handler", Cell: func(c *nodev1.RuntimeClass, _ time.Time) any { return c.Handler }},
		catalog.AgeColumn[nodev1.RuntimeClass](),
	},
	Complete: true,
}

// checkClass validates everything but the handler.
func checkClass(at *check.Part, c *nodev1.RuntimeClass) {
	if c.Overhead != nil {
		quantity.Requirements{Name: quantity.ContainerName}.Validate(c.Overhead.PodFixed, nil, at.Child("overhead"))
	}
	if c.Scheduling == nil {
		return
	}
	s := at.Child("scheduling")
	if len(c.Scheduling.NodeSelector) > 0 {
		s.Add(metav1validation.ValidateLabels(c.Scheduling.NodeSelector, s.Path("nodeSelector"))...)
	}
	checkTolerations(s, c.Scheduling.Tolerations)
}

// checkHandler validates the handler as a DNS label. Two packages have that rule, with different messages; the caller chooses one.
func checkHandler(at *check.Part, handler string, rule func(string) []string) {
	if handler == "" {
		at.Required("handler", "")
		return
	}
	at.Format("handler", handler, rule)
}

func checkTolerations(at *check.Part, tolerations []corev1.Toleration) {
	if len(tolerations) == 0 {
		return
	}
	at.Add(pod.ValidateTolerations(tolerations, at.Path("tolerations"))...)
	seen := map[corev1.Toleration]struct{}{}
	for i, t := range tolerations {
		key := t
		key.TolerationSeconds = nil
		if _, again := seen[key]; again {
			at.Add(field.Duplicate(at.Path("tolerations").Index(i), check.Internal(t)))
		}
		seen[key] = struct{}{}
	}
}

func warnings(c, _ *nodev1.RuntimeClass) []string {
	if c.Scheduling == nil {
		return nil
	}
	var list []string
	for key := range c.Scheduling.NodeSelector {
		if msg := nodeselector.DeprecatedLabel(key); msg != "" {
			list = append(list, fmt.Sprintf("scheduling.nodeSelector: %s", msg))
		}
	}
	return list
}
