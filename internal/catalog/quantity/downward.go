package quantity

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// downward lists the resources of a container that the downward API can expose, in the order of error messages.
var downward = []string{"limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"}

const bytes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"

// divisors maps each resource to its allowed divisors and its name, as messages have them.
var divisors = map[string]struct{ allowed, what string }{
	"cpu":               {"1m and 1", "cpu"},
	"memory":            {bytes, "memory"},
	"ephemeral-storage": {bytes, "local ephemeral storage"},
	"hugepages-":        {bytes, "hugepages"},
}

// ResourceFieldRef validates a reference to a container's requests or limits, from an environment variable or, if inVolume,
// from a downward API volume, where the container must be named.
func ResourceFieldRef(ref *corev1.ResourceFieldSelector, inVolume bool, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case inVolume && ref.ContainerName == "":
		errs = append(errs, field.Required(path.Child("containerName"), ""))
	case ref.Resource == "":
		errs = append(errs, field.Required(path.Child("resource"), ""))
	case !slices.Contains(downward, ref.Resource) && !downwardHugePages(ref.Resource):
		errs = append(errs, field.NotSupported(path.Child("resource"), ref.Resource, downward))
	}
	if msg := divisorError(ref.Resource, ref.Divisor); msg != "" {
		errs = append(errs, field.Invalid(path.Child("divisor"), ref.Resource, msg))
	}
	return errs
}

func divisorError(name string, divisor resource.Quantity) string {
	kind := corev1.ResourceHugePagesPrefix
	if slices.Contains(downward, name) {
		_, kind, _ = strings.Cut(name, ".")
	} else if !downwardHugePages(name) {
		return ""
	}
	rule := divisors[kind]
	if divisor.IsZero() || slices.Contains(strings.FieldsFunc(rule.allowed, notWord), divisor.String()) {
		return ""
	}
	return "only divisor's values " + rule.allowed + " are supported with the " + rule.what + " resource"
}

func notWord(r rune) bool { return r == ' ' || r == ',' }

func downwardHugePages(name string) bool {
	return strings.HasPrefix(name, "requests."+corev1.ResourceHugePagesPrefix) || strings.HasPrefix(name, "limits."+corev1.ResourceHugePagesPrefix)
}
