package apiregistration

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"skiff/internal/catalog"
	"skiff/internal/catalog/check"
)

type service = apiregistrationv1.APIService

var APIService = catalog.Resource[service]{
	Group: group, Version: "v1", Kind: "APIService", Plural: "apiservices", Categories: []string{"api-extensions"},
	StorageName:    group + "/apiservices",
	StoredAsJSON:   true,
	AnyFinalizer:   true,
	Name:           anyPathSegment,
	Default:        setDefaults,
	PrepareCreate:  func(s *service, r catalog.Request) { markLocal(s, r.Now) },
	Validate:       validateCreate,
	ValidateUpdate: validateUpdate,
	Status: &catalog.Edit[service]{
		PrepareUpdate:  keepMetadata,
		ResetFields:    []string{"metadata"},
		ValidateUpdate: validateStatus,
	},
	Columns:  columns(),
	Complete: true,
}

func setDefaults(s *service) {
	if s.Spec.Service != nil && s.Spec.Service.Port == nil {
		port := int32(443)
		s.Spec.Service.Port = &port
	}
}

// markLocal marks an API service that this server serves itself as available, which it always is.
func markLocal(s *service, now time.Time) {
	if s.Spec.Service != nil {
		return
	}
	s.Status.Conditions = []apiregistrationv1.APIServiceCondition{{
		Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Reason: "Local", Message: "Local APIServices are always available",
	}}
}

func keepMetadata(new, old *service) {
	new.Labels, new.Annotations, new.Finalizers, new.OwnerReferences = old.Labels, old.Annotations, old.Finalizers, old.OwnerReferences
}

const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

func validateCreate(s *service) field.ErrorList { return validate(s).Errors() }

func validateUpdate(new, _ *service) field.ErrorList {
	root := validate(new)
	root.Child("metadata").GeneratedName(new, anyPathSegment)
	return root.Errors()
}

func anyPathSegment(name string, _ bool) []string { return content.IsPathSegmentName(name) }

func validate(s *service) *check.Part {
	root := check.At(nil)
	validateName(root.Child("metadata"), s)
	spec := root.Child("spec")
	if s.Spec.Group != "" {
		spec.Format("group", s.Spec.Group, validation.IsDNS1123Subdomain)
	} else if s.Spec.Version != "v1" {
		spec.Required("group", "only v1 may have an empty group and it better be legacy kube")
	}
	spec.Format("version", s.Spec.Version, validation.IsDNS1035Label)
	if p := s.Spec.GroupPriorityMinimum; p <= 0 || p > maxGroupPriority {
		spec.Invalid("groupPriorityMinimum", p, "must be positive and less than 20000")
	}
	if p := s.Spec.VersionPriority; p <= 0 || p > maxVersionPriority {
		spec.Invalid("versionPriority", p, "must be positive and less than 1000")
	}
	if s.Spec.Service == nil {
		validateLocal(spec, &s.Spec)
	} else {
		validateRemote(spec, &s.Spec)
	}
	return root
}

// validateName requires that an API service is named after its version and group.
func validateName(meta *check.Part, s *service) {
	required := s.Spec.Version + "." + s.Spec.Group
	for _, n := range []struct{ field, value string }{{"generateName", s.GenerateName}, {"name", s.Name}} {
		if n.value != "" && n.value != required && len(content.IsPathSegmentName(n.value)) == 0 {
			meta.Invalid(n.field, n.value, fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", required))
		}
	}
}

func validateLocal(spec *check.Part, s *apiregistrationv1.APIServiceSpec) {
	if len(s.CABundle) > 0 {
		spec.Invalid("caBundle", fmt.Sprintf("%d bytes", len(s.CABundle)), "local APIServices may not have a caBundle")
	}
	if s.InsecureSkipTLSVerify {
		spec.Invalid("insecureSkipTLSVerify", true, "local APIServices may not have insecureSkipTLSVerify")
	}
}

func validateRemote(spec *check.Part, s *apiregistrationv1.APIServiceSpec) {
	p := spec.Child("service")
	p.Present("namespace", s.Service.Namespace != "", "")
	p.Present("name", s.Service.Name != "", "")
	if msgs := validation.IsValidPortNum(int(*s.Service.Port)); len(msgs) > 0 {
		p.Invalid("port", *s.Service.Port, "port is not valid: "+strings.Join(msgs, ", "))
	}
	if s.InsecureSkipTLSVerify && len(s.CABundle) > 0 {
		spec.Invalid("insecureSkipTLSVerify", true, "may not be true if caBundle is present")
	}
}

func validateStatus(new, _ *service) field.ErrorList {
	root := check.At(nil)
	status := root.Child("status")
	for i := range new.Status.Conditions {
		check.OneOf(status.Item("conditions", i), "status", new.Status.Conditions[i].Status,
			apiregistrationv1.ConditionTrue, apiregistrationv1.ConditionFalse, apiregistrationv1.ConditionUnknown)
	}
	return root.Errors()
}

func columns() []catalog.Column[service] {
	return []catalog.Column[service]{
		catalog.NameColumn[service](),
		{Name: "Service", Description: "The reference to the service that hosts this API endpoint.",
			Cell: func(s *service, _ time.Time) any {
				if s.Spec.Service == nil {
					return "Local"
				}
				return s.Spec.Service.Namespace + "/" + s.Spec.Service.Name
			}},
		{Name: "Available", Description: "Whether this service is available.", Cell: func(s *service, _ time.Time) any { return availability(s) }},
		catalog.AgeColumn[service](),
	}
}

// availability returns the status of the condition Available, with the reason unless it is True.
func availability(s *service) string {
	i := slices.IndexFunc(s.Status.Conditions, func(c apiregistrationv1.APIServiceCondition) bool { return c.Type == apiregistrationv1.Available })
	if i < 0 {
		return string(apiregistrationv1.ConditionUnknown)
	}
	c := &s.Status.Conditions[i]
	if c.Status == apiregistrationv1.ConditionTrue || c.Reason == "" {
		return string(c.Status)
	}
	return fmt.Sprintf("%s (%s)", c.Status, c.Reason)
}
