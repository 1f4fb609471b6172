package quantity

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

// Requirements are the rules for requests and limits, which differ slightly between containers, pods and overhead.
type Requirements struct {
	// Name checks each resource name: ContainerName or PodLevelName.
	Name func(corev1.ResourceName, *field.Path) field.ErrorList
	// PartialHugePages allows amounts that are no multiple of the page size, as old objects may have them.
	PartialHugePages bool
}

// Validate validates limits and requests, each by itself and against the other. p is the part that holds both.
func (r Requirements) Validate(limits, requests corev1.ResourceList, p *check.Part) {
	if len(limits) == 0 && len(requests) == 0 {
		return
	}
	var buf [8]corev1.ResourceName
	for _, name := range SortedNames(limits, buf[:]) {
		q := limits[name]
		r.amount(name, q, p, "limits")
		r.hugePages(name, q, p, "limits")
	}
	for _, name := range SortedNames(requests, buf[:]) {
		q := requests[name]
		r.amount(name, q, p, "requests")
		withinLimit(name, q, limits, p)
		r.hugePages(name, q, p, "requests")
	}
	if hugePagesAlone(limits, requests) {
		p.Forbidden("", "HugePages require cpu or memory")
	}
}

func (r Requirements) amount(name corev1.ResourceName, q resource.Quantity, p *check.Part, list string) {
	if plain := name == corev1.ResourceCPU || name == corev1.ResourceMemory; plain && q.Sign() >= 0 {
		return // the most frequent case by far: it builds no path
	}
	path := p.Path(list).Key(string(name))
	p.Add(r.Name(name, path)...)
	p.Add(ForResource(string(name), q, path)...)
}

func (r Requirements) hugePages(name corev1.ResourceName, q resource.Quantity, p *check.Part, list string) {
	if r.PartialHugePages || !IsHugePage(name) || WholeHugePages(name, q) {
		return
	}
	p.Add(field.Invalid(p.Path(list).Key(string(name)), q.String(),
		fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
}

// withinLimit checks that a request does not exceed its limit, and equals it where there is no overcommit.
func withinLimit(name corev1.ResourceName, q resource.Quantity, limits corev1.ResourceList, p *check.Part) {
	limit, limited := limits[name]
	switch {
	case !limited && !IsOvercommitAllowed(name):
		p.Required("limits", "Limit must be set for non overcommitable resources")
	case !limited || q.Cmp(limit) == 0:
	case !IsOvercommitAllowed(name):
		p.Invalid("requests", q.String(), fmt.Sprintf("must be equal to %s limit of %s", name, limit.String()))
	case q.Cmp(limit) > 0:
		p.Invalid("requests", q.String(), fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String()))
	}
}

// hugePagesAlone reports whether huge pages are requested without cpu or memory. Such a pod would be BestEffort.
func hugePagesAlone(lists ...corev1.ResourceList) bool {
	found := false
	for _, list := range lists {
		for name := range list {
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory {
				return false
			}
			found = found || IsHugePage(name)
		}
	}
	return found
}
