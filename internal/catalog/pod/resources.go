package pod

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
)

// resources validates requests, limits and claims. The names of resources are validated with the given rule.
func (r *rules) resources(p *check.Part, requirements *corev1.ResourceRequirements, name func(corev1.ResourceName, *field.Path) field.ErrorList) {
	quantity.Requirements{Name: name, PartialHugePages: r.allow.partialHugePages}.Validate(requirements.Limits, requirements.Requests, p)
	for i := range requirements.Claims {
		r.claim(p, requirements.Claims, i)
	}
}

// claim validates the claim at an index: it must be one of the pod's, and not be used already, in whole or by the same request.
func (r *rules) claim(p *check.Part, claims []corev1.ResourceClaim, i int) {
	claim := &claims[i]
	at := func() *field.Path { return p.Path("claims").Index(i) }
	if claim.Name == "" {
		p.Add(field.Required(at(), ""))
		return
	}
	used := func(request string) bool {
		return slices.Contains(claims[:i], corev1.ResourceClaim{Name: claim.Name, Request: request})
	}
	if used("") {
		p.Add(field.Duplicate(at(), claim.Name))
	} else if claim.Request != "" {
		p.Item("claims", i).Format("request", claim.Request, utilvalidation.IsDNS1123Label)
		if used(claim.Request) {
			p.Add(field.Duplicate(at(), claim.Name+"/"+claim.Request))
		}
	} else {
		for n, before := range claims[:i] {
			if before.Name == claim.Name && !slices.Contains(claims[:n], before) {
				p.Add(field.Duplicate(at(), claim.Name))
			}
		}
	}
	if names := r.claimNames(); !slices.Contains(names, claim.Name) {
		err := field.NotFound(at(), claim.Name)
		err.Detail = "must be one of the names in pod.spec.resourceClaims"
		if len(names) == 0 {
			err.Detail += " which is empty"
		} else {
			err.Detail += ": " + strings.Join(names, ", ")
		}
		p.Add(err)
	}
}

// claimNames returns the names of the pod's claims, sorted.
func (r *rules) claimNames() []string {
	var names []string
	for _, c := range r.spec.ResourceClaims {
		if c.Name != "" {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// resourceClaims validates the pod's references to claims, or to templates of claims.
func (r *rules) resourceClaims(p *check.Part) {
	for i := range r.spec.ResourceClaims {
		c, at := &r.spec.ResourceClaims[i], p.Item("resourceClaims", i)
		if r.meta != nil && isMirror(r.meta.Annotations) {
			p.Add(field.Forbidden(field.NewPath(""), "static pods do not support resource claims"))
			continue
		}
		switch {
		case c.Name == "":
			at.Required("name", "")
		case slices.ContainsFunc(r.spec.ResourceClaims[:i], func(before corev1.PodResourceClaim) bool { return before.Name == c.Name }):
			at.Add(field.Duplicate(at.Path("name"), c.Name))
		default:
			at.Format("name", c.Name, utilvalidation.IsDNS1123Label)
		}
		switch claim, template := c.ResourceClaimName != nil, c.ResourceClaimTemplateName != nil; {
		case claim && template:
			at.Invalid("", check.Internal(*c), "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
		case !claim && !template:
			at.Invalid("", check.Internal(*c), "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`")
		}
		if c.ResourceClaimName != nil {
			formatName(at, "resourceClaimName", *c.ResourceClaimName, validation.NameIsDNSSubdomain)
		}
		if c.ResourceClaimTemplateName != nil {
			formatName(at, "resourceClaimTemplateName", *c.ResourceClaimTemplateName, validation.NameIsDNSSubdomain)
		}
	}
}
