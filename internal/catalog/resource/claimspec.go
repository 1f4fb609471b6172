package resource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
)

func checkClaimSpec(p part, s *resourcev1.ResourceClaimSpec) {
	p = p.child("devices")
	set(p, "requests", s.Devices.Requests, resourcev1.DeviceRequestsMaxSize,
		func(r *resourcev1.DeviceRequest) string { return r.Name }, checkRequest)
	list(p, "constraints", s.Devices.Constraints, resourcev1.DeviceConstraintsMaxSize, func(p part, c *resourcev1.DeviceConstraint) {
		checkConstraint(p, c, s.Devices.Requests)
	})
	list(p, "config", s.Devices.Config, resourcev1.DeviceConfigMaxSize, func(p part, c *resourcev1.DeviceClaimConfiguration) {
		checkRequestRefs(p, c.Requests, s.Devices.Requests)
		checkConfiguration(p, &c.DeviceConfiguration, false)
	})
}

func checkRequest(p part, r *resourcev1.DeviceRequest) {
	p.Format("name", r.Name, utilvalidation.IsDNS1123Label)
	inner := p
	switch several := len(r.FirstAvailable) > 0; {
	case r.Exactly == nil && !several:
		p.Required("", "exactly one of `exactly` or `firstAvailable` is required")
	case r.Exactly != nil && several:
		p.Invalid("", nil, "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set")
		inner = p.onlyDeclared()
	}
	if e := r.Exactly; e != nil {
		inner := inner.child("exactly")
		if e.DeviceClassName == "" {
			inner.Required("deviceClassName", "")
		} else {
			inner.Format("deviceClassName", e.DeviceClassName, utilvalidation.IsDNS1123Subdomain)
		}
		checkRequestDetails(inner, requestDetails{e.Selectors, e.AllocationMode, e.Count, e.Tolerations})
	}
	set(inner, "firstAvailable", r.FirstAvailable, resourcev1.FirstAvailableDeviceRequestMaxSize,
		func(s *resourcev1.DeviceSubRequest) string { return s.Name }, checkSubRequest)
}

func checkSubRequest(p part, s *resourcev1.DeviceSubRequest) {
	p.Format("name", s.Name, utilvalidation.IsDNS1123Label)
	if s.DeviceClassName == "" {
		p.declared.Required("deviceClassName", "")
	} else {
		p.declared.Format("deviceClassName", s.DeviceClassName, content.IsDNS1123Subdomain)
	}
	checkRequestDetails(p, requestDetails{s.Selectors, s.AllocationMode, s.Count, s.Tolerations})
}

// requestDetails are the fields that requests and subrequests have in common.
type requestDetails struct {
	selectors   []resourcev1.DeviceSelector
	mode        resourcev1.DeviceAllocationMode
	count       int64
	tolerations []resourcev1.DeviceToleration
}

func checkRequestDetails(p part, d requestDetails) {
	checkSelectors(p, d.selectors, false)
	switch d.mode {
	case resourcev1.DeviceAllocationModeAll:
		if d.count != 0 {
			p.Invalid("count", d.count, fmt.Sprintf("must not be specified when allocationMode is '%s'", d.mode))
		}
	case resourcev1.DeviceAllocationModeExactCount:
		if d.count <= 0 {
			p.Invalid("count", d.count, "must be greater than zero")
		}
	default:
		check.OneOf(p.declared, "allocationMode", d.mode, resourcev1.DeviceAllocationModeAll, resourcev1.DeviceAllocationModeExactCount)
	}
	for i := range d.tolerations {
		checkToleration(p.item("tolerations", i), &d.tolerations[i])
	}
}

func checkSelectors(p part, selectors []resourcev1.DeviceSelector, stored bool) {
	list(p, "selectors", selectors, resourcev1.DeviceSelectorsMaxSize, func(p part, s *resourcev1.DeviceSelector) {
		switch {
		case s.CEL == nil:
			p.Required("cel", "")
		case !stored:
			checkExpression(p.child("cel"), s.CEL.Expression)
		}
	})
}

func checkConstraint(p part, c *resourcev1.DeviceConstraint, requests []resourcev1.DeviceRequest) {
	checkRequestRefs(p, c.Requests, requests)
	if c.MatchAttribute == nil && c.DistinctAttribute == nil {
		p.Required("", `exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`)
	}
	if c.MatchAttribute != nil {
		declare(p.declared, "matchAttribute", c.MatchAttribute, validate.ResourceFullyQualifiedName)
	}
	if c.DistinctAttribute != nil {
		declare(p.declared, "distinctAttribute", c.DistinctAttribute, validate.ResourceFullyQualifiedName)
	}
}

func checkRequestRefs(p part, refs []string, requests []resourcev1.DeviceRequest) {
	set(p, "requests", refs, resourcev1.DeviceRequestsMaxSize, itself, func(p part, ref *string) { checkRequestRef(p.Part, "", *ref, requests) })
}

// checkRequestRef validates a reference to a request or, as request/subrequest, to one of its subrequests.
func checkRequestRef(p *check.Part, name, ref string, requests []resourcev1.DeviceRequest) {
	const missing = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
	segments := strings.Split(ref, "/")
	if len(segments) > 2 {
		p.Invalid(name, ref, missing)
		return
	}
	for _, s := range segments {
		p.Format(name, s, utilvalidation.IsDNS1123Label)
	}
	if !isRequest(segments, requests) {
		p.Invalid(name, ref, missing)
	}
}

// isRequest reports whether a reference names a request. It uses the last request of a name: the names of valid requests differ.
func isRequest(segments []string, requests []resourcev1.DeviceRequest) bool {
	for _, r := range slices.Backward(requests) {
		if r.Name == segments[0] {
			return len(segments) == 1 || slices.ContainsFunc(r.FirstAvailable, func(s resourcev1.DeviceSubRequest) bool { return s.Name == segments[1] })
		}
	}
	return false
}

func checkConfiguration(p part, c *resourcev1.DeviceConfiguration, stored bool) {
	if c.Opaque == nil {
		p.Required("opaque", "")
		return
	}
	p = p.child("opaque")
	declareDriver(p.declared, "driver", c.Opaque.Driver)
	checkRaw(p.Part, "parameters", &c.Opaque.Parameters, stored, resourcev1.OpaqueParametersMaxLength)
}

// checkRaw requires a JSON object, of limited length unless it was stored before there was a limit.
func checkRaw(p *check.Part, name string, data *runtime.RawExtension, stored bool, limit int) {
	if len(data.Raw) == 0 {
		p.Required(name, "")
		return
	}
	if !stored && len(data.Raw) > limit {
		p.Add(field.TooLong(p.Path(name), "", limit))
		return
	}
	var value any
	err := json.Unmarshal(data.Raw, &value)
	_, isObject := value.(map[string]any)
	switch {
	case err != nil:
		p.Invalid(name, "<value omitted>", fmt.Sprintf("error parsing data as JSON: %v", err))
	case value == nil:
		p.Required(name, "")
	case !isObject:
		p.Invalid(name, "<value omitted>", "must be a valid JSON object")
	}
}
