package apiserver

import (
	"errors"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/catalog"
	"skiff/internal/catalog/scheduling"
)

// keepSystemPriorities refuses to delete the priority classes that the cluster's own pods rely on.
func keepSystemPriorities(obj catalog.Object) error {
	if !scheduling.IsSystem(obj.GetName()) {
		return nil
	}
	return apierrors.NewForbidden(schedulingv1.Resource("priorityclasses"), obj.GetName(), errors.New("this is a system priority class and cannot be deleted"))
}
