package scheduling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

// Resources returns the resources of the group.
func Resources() []catalog.Declaration { return []catalog.Declaration{PriorityClass} }

// PriorityClass declares priority classes. The classes that Bootstrap returns must not be deleted.
var PriorityClass = catalog.Resource[schedulingv1.PriorityClass]{
	Group: "scheduling.k8s.io", Version: "v1", Kind: "PriorityClass", Plural: "priorityclasses", Short: []string{"pc"},
	Deletion: catalog.Deletion[schedulingv1.PriorityClass]{Forbidden: func(c *schedulingv1.PriorityClass) string {
		if IsSystem(c.Name) { // which the cluster's own pods rely on
			return "this is a system priority class and cannot be deleted"
		}
		return ""
	}},
	Name:                validation.NameIsDNSSubdomain,
	UnconditionalUpdate: true,
	Default: func(c *schedulingv1.PriorityClass) {
		if c.PreemptionPolicy == nil {
			c.PreemptionPolicy = ptr.To(corev1.PreemptLowerPriority)
		}
	},
	// No field that would increment the generation can change.
	PrepareCreate:  func(c *schedulingv1.PriorityClass, _ catalog.Request) { c.Generation = 1 },
	Validate:       validate,
	ValidateUpdate: validateUpdate,
	Columns:        columns,
	Complete:       true,
}

const (
	systemPrefix    = "system-"
	highestForUsers = int32(1_000_000_000)
	systemCritical  = 2 * highestForUsers
)

// Bootstrap returns the classes that every cluster has, which the server creates if they are missing.
func Bootstrap() []catalog.Object {
	return []catalog.Object{
		system("system-node-critical", systemCritical+1000, "Used for system critical pods that must not be moved from their current node."),
		system("system-cluster-critical", systemCritical,
			"Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	}
}

// IsSystem reports whether a class is one of those that Bootstrap returns.
func IsSystem(name string) bool { _, ok := systemValue(name); return ok }

func system(name string, value int32, description string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description}
}

func systemValue(name string) (int32, bool) {
	all := Bootstrap()
	i := slices.IndexFunc(all, func(o catalog.Object) bool { return o.GetName() == name })
	if i < 0 {
		return 0, false
	}
	return all[i].(*schedulingv1.PriorityClass).Value, true
}

func validate(c *schedulingv1.PriorityClass) field.ErrorList {
	at := check.At(nil)
	if strings.HasPrefix(c.Name, systemPrefix) {
		if problem := systemProblem(c); problem != "" {
			at.Child("metadata").Forbidden("name", "priority class names with 'system-' prefix are reserved for system use only. error: "+problem)
		}
	} else if c.Value > highestForUsers {
		at.Forbidden("value", fmt.Sprintf("maximum allowed value of a user defined priority is %d", highestForUsers))
	}
	switch p := c.PreemptionPolicy; {
	case p == nil:
	case *p == "":
		at.Required("preemptionPolicy", "")
	default:
		check.OneOf(at, "preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	return at.Errors()
}

// systemProblem returns why a class may not have its name, or "".
func systemProblem(c *schedulingv1.PriorityClass) string {
	switch value, known := systemValue(c.Name); {
	case !known:
		return c.Name + " is not a known system priority class"
	case c.Value != value:
		return fmt.Sprintf("value of %s PriorityClass must be %d", c.Name, value)
	case c.GlobalDefault:
		return fmt.Sprintf("globalDefault of %s PriorityClass must be false", c.Name)
	}
	return ""
}

func validateUpdate(new, old *schedulingv1.PriorityClass) field.ErrorList {
	at := check.At(nil)
	if new.Value != old.Value {
		at.Forbidden("value", "may not be changed in an update.")
	}
	at.Immutable("preemptionPolicy", new.PreemptionPolicy, old.PreemptionPolicy)
	return at.Errors()
}

var doc = schedulingv1.PriorityClass{}.SwaggerDoc()

var columns = []catalog.Column[schedulingv1.PriorityClass]{
	catalog.NameColumn[schedulingv1.PriorityClass](),
	{Name: "Value", Type: "integer", Description: doc["value"], Cell: func(c *schedulingv1.PriorityClass, _ time.Time) any {
		return int64(c.Value)
	}},
	{Name: "Global-Default", Type: "boolean", Description: doc["globalDefault"], Cell: func(c *schedulingv1.PriorityClass, _ time.Time) any {
		return c.GlobalDefault
	}},
	catalog.AgeColumn[schedulingv1.PriorityClass](),
	{Name: "PreemptionPolicy", Description: doc["preemptionPolicy"], Cell: func(c *schedulingv1.PriorityClass, _ time.Time) any {
		return string(ptr.Deref(c.PreemptionPolicy, ""))
	}},
}
