package storageversionmigrator

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"

	"skiff/internal/client"
	"skiff/internal/controller"
)

// definitionManager is the field manager of what is applied to definitions, by upstream's name of the controller that does.
const definitionManager = "migration-runner-controller"

var definitions = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

type definition = apiextensionsv1.CustomResourceDefinition

// markDefinition says in the definition of a custom resource that a migration is running.
func markDefinition(m *migration, now time.Time) controller.Action {
	return onDefinition("mark", m, func(d *definition) apiextensionsv1.CustomResourceDefinitionStatus {
		return migrating(d, now, apiextensionsv1.ConditionTrue, runningReason, fmt.Sprintf("Migration %s is running", m.Name))
	})
}

// releaseDefinition says in the definition of a custom resource how a migration ended.
func releaseDefinition(m *migration, now time.Time) controller.Action {
	return onDefinition("release", m, func(d *definition) apiextensionsv1.CustomResourceDefinitionStatus {
		return released(d, isTrue(m, storagemigrationv1.MigrationSucceeded), now)
	})
}

// released returns what to apply to the status of a definition after a migration. Objects are stored in no other version than the storage version if the
// definition is the one that was marked.
func released(d *definition, succeeded bool, now time.Time) apiextensionsv1.CustomResourceDefinitionStatus {
	same := false
	for _, c := range d.Status.Conditions {
		same = same || c.Type == apiextensionsv1.StorageMigrating && c.ObservedGeneration == d.Generation
	}
	reason, message := "MigrationFailed", "The migration has failed"
	switch {
	case succeeded && same:
		reason, message = "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated"
	case succeeded:
		reason, message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	}
	status := migrating(d, now, apiextensionsv1.ConditionFalse, reason, message)
	for _, v := range d.Spec.Versions {
		if v.Storage && succeeded && same {
			status.StoredVersions = []string{v.Name}
		}
	}
	return status
}

func migrating(d *definition, now time.Time, is apiextensionsv1.ConditionStatus, reason, message string) apiextensionsv1.CustomResourceDefinitionStatus {
	return apiextensionsv1.CustomResourceDefinitionStatus{Conditions: []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.StorageMigrating, Status: is,
		Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: d.Generation}}}
}

// outdated reports whether the API server stores the objects of a custom resource in another version than its definition says, because it has not served
// the definition's last change yet. What it wrote now would not be migrated.
func outdated(ctx context.Context, c *client.Client, found target) (bool, error) {
	d, err := definitionOf(ctx, c, found.resource.Resource+"."+found.resource.Group)
	if err != nil || d == nil {
		return false, err
	}
	want := ""
	for _, v := range d.Spec.Versions {
		if v.Storage && v.Served {
			hash := sha256.Sum256([]byte(d.Spec.Group + "/" + v.Name + "/" + found.kind)) // as discovery has it
			want = base64.StdEncoding.EncodeToString(hash[:8])
		}
	}
	return found.storage != want, nil
}

// definitionOf returns a definition, or nil if there is none.
func definitionOf(ctx context.Context, c *client.Client, name string) (*definition, error) {
	found, err := c.Dynamic().Resource(definitions).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := &definition{}
	return d, runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, d)
}

// onDefinition applies a status to the definition of a migration's resource in the version that it was made from. There is none for other resources.
func onDefinition(verb string, m *migration, status func(*definition) apiextensionsv1.CustomResourceDefinitionStatus) controller.Action {
	name := m.Spec.Resource.Resource + "." + m.Spec.Resource.Group
	return controller.Call(verb+" CustomResourceDefinition "+name, func(ctx context.Context, c *client.Client) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error {
			d, err := definitionOf(ctx, c, name)
			if err != nil || d == nil {
				return err
			}
			_, err = c.Dynamic().Resource(definitions).ApplyStatus(ctx, name, applied(d, status(d)), metav1.ApplyOptions{FieldManager: definitionManager, Force: true})
			return err
		})
	})
}

// applied returns the apply configuration of a definition's status. Fields that are not given are not applied.
func applied(d *definition, status apiextensionsv1.CustomResourceDefinitionStatus) *unstructured.Unstructured {
	c := status.Conditions[0]
	fields := map[string]any{"conditions": []any{map[string]any{"type": string(c.Type), "status": string(c.Status), "reason": c.Reason, "message": c.Message,
		"lastTransitionTime": c.LastTransitionTime.UTC().Format(time.RFC3339), "observedGeneration": c.ObservedGeneration}}}
	if len(status.StoredVersions) > 0 {
		fields["storedVersions"] = []any{status.StoredVersions[0]}
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiextensionsv1.SchemeGroupVersion.String(), "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": d.Name, "resourceVersion": d.ResourceVersion}, "status": fields}}
}
