package noderestriction

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authz"
)

// admitToken lets a node request tokens for the service accounts of its pods, bound to the pod and for an audience that the pod mounts.
func (p *plugin) admitToken(ctx context.Context, node string, a *admission.Attributes) error {
	if a.Operation != admission.Create || a.Subresource != "token" {
		return nil
	}
	request, ok := a.Object.(*authenticationv1.TokenRequest)
	if !ok {
		return unexpected(a, a.Object)
	}
	ref := request.Spec.BoundObjectRef
	if ref == nil || ref.APIVersion != "v1" || ref.Kind != "Pod" || ref.Name == "" {
		return a.Forbidden(errors.New("node requested token not bound to a pod"))
	}
	if ref.UID == "" {
		return a.Forbidden(errors.New("node requested token with a pod binding without a uid"))
	}
	return checkStored(ctx, p.objects, pods, a.Namespace, ref.Name, func(pod *corev1.Pod) error {
		if ref.UID != pod.UID {
			return a.Forbidden(fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. "+
				"The object might have been deleted and then recreated", ref.UID))
		}
		if pod.Spec.NodeName != node {
			return a.Forbidden(errors.New("node requested token bound to a pod scheduled on a different node"))
		}
		if err := p.checkAudience(ctx, a, request.Spec.Audiences, pod); err != nil {
			return a.Forbidden(err)
		}
		return nil
	})
}

// checkAudience requires that the pod mounts a token for the audience, or that the authorizer allows the node to request it anyway.
func (p *plugin) checkAudience(ctx context.Context, a *admission.Attributes, audiences []string, pod *corev1.Pod) error {
	if len(audiences) > 1 {
		return errors.New("node may only request 0 or 1 audiences")
	}
	audience := ""
	if len(audiences) == 1 {
		audience = audiences[0]
	}
	wanted, err := p.wantsAudience(pod, audience)
	if err != nil {
		return fmt.Errorf("error validating audience %q: %w", audience, err)
	}
	if wanted {
		return nil
	}
	allowed, err := p.allowed(ctx, a, "request-serviceaccounts-token-audience", audience, a.Name)
	switch {
	case allowed:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request tokens for audience %q: %w", a.User.Username, audience, err)
	default:
		return fmt.Errorf("%s is not authorized to request tokens for audience %q", a.User.Username, audience)
	}
}

// allowed asks the authorizer about a permission that no request stands for. It can return both true and an error.
func (p *plugin) allowed(ctx context.Context, a *admission.Attributes, verb, resource, name string) (bool, error) {
	decision, _, err := p.authorizer.Authorize(ctx, &authz.Attributes{User: a.User, Verb: verb, Resource: true, Group: a.Info.GVR.Group,
		Version: a.Info.GVR.Version, Plural: resource, Namespace: a.Namespace, Name: name})
	return decision == authz.Allow, err
}

// wantsAudience reports whether a volume of the pod needs a token for the audience: a projected one, or one for the volume's CSI driver.
func (p *plugin) wantsAudience(pod *corev1.Pod, audience string) (bool, error) {
	var errs []error
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected != nil {
			for j := range v.Projected.Sources {
				if token := v.Projected.Sources[j].ServiceAccountToken; token != nil && token.Audience == audience {
					return true, nil
				}
			}
		}
		driver, err := p.driverOf(pod, v)
		if err == nil && driver != "" {
			var wanted bool
			if wanted, err = p.driverWants(driver, audience); wanted {
				return true, nil
			}
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return false, utilerrors.NewAggregate(errs)
}

func (p *plugin) driverWants(name, audience string) (bool, error) {
	driver, ok := p.objects.Get(csiDrivers, "", name).(*storagev1.CSIDriver)
	if !ok {
		return false, notFound(csiDrivers, name)
	}
	for _, token := range driver.Spec.TokenRequests {
		if token.Audience == audience {
			return true, nil
		}
	}
	return false, nil
}
