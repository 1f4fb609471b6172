package main

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	v1 "sample/api/v1"
)

// webhooks sets defaults of Sites and validates them.
type webhooks struct{}

// Default implements admission.Defaulter.
func (webhooks) Default(_ context.Context, site *v1.Site) error {
	spec := &site.Spec
	if spec.Image == "" {
		spec.Image = "busybox:latest"
	}
	if spec.Replicas == nil {
		one := int32(1)
		spec.Replicas = &one
	}
	if spec.Port == 0 {
		spec.Port = 8080
	}
	if len(spec.Pages) == 0 {
		spec.Pages = map[string]string{"index.html": "It works."}
	}
	return nil
}

// ValidateCreate implements admission.Validator.
func (webhooks) ValidateCreate(_ context.Context, site *v1.Site) (admission.Warnings, error) {
	return validate(site, nil)
}

// ValidateUpdate implements admission.Validator.
func (webhooks) ValidateUpdate(_ context.Context, before, site *v1.Site) (admission.Warnings, error) {
	return validate(site, immutable(before, site))
}

// ValidateDelete implements admission.Validator: a Site that is marked as protected is not deleted.
func (webhooks) ValidateDelete(_ context.Context, site *v1.Site) (admission.Warnings, error) {
	if site.Labels["protected"] == "true" {
		return nil, apierrors.NewForbidden(sites, site.Name, field.Forbidden(field.NewPath("metadata", "labels"), "the site is protected"))
	}
	return nil, nil
}

// immutable returns what is wrong with a change.
func immutable(before, site *v1.Site) (errs field.ErrorList) {
	if before.Spec.Port != site.Spec.Port {
		errs = append(errs, field.Invalid(field.NewPath("spec", "port"), site.Spec.Port, "may not change"))
	}
	return errs
}

// validate returns the error of a Site with what is wrong with its change.
func validate(site *v1.Site, errs field.ErrorList) (warnings admission.Warnings, err error) {
	pages := field.NewPath("spec", "pages")
	if _, ok := site.Spec.Pages["index.html"]; !ok {
		errs = append(errs, field.Required(pages.Key("index.html"), "a site has a first page"))
	}
	for name := range site.Spec.Pages {
		if strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(pages, name, "must be the name of a file"))
		}
	}
	if site.Spec.Replicas != nil && *site.Spec.Replicas == 0 {
		warnings = append(warnings, "spec.replicas is 0: nothing shows the site")
	}
	if len(errs) > 0 {
		return warnings, apierrors.NewInvalid(v1.GroupVersion.WithKind("Site").GroupKind(), site.Name, errs)
	}
	return warnings, nil
}
