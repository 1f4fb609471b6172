package kubelet

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/client"
	"skiff/internal/kubelet/csi"
	"skiff/internal/kubelet/dra"
	"skiff/internal/kubelet/podcertificate"
	"skiff/internal/kubelet/volume"
)

var everything = labels.Everything()

// Objects reads the objects that pods of this node refer to. The node authorizer lets a node get only those, one by one.
type Objects struct {
	client       *client.Client
	nodeName     string
	csiDrivers   storagelisters.CSIDriverLister
	certificates *podcertificate.Manager
}

var (
	_ volume.Source = (*Objects)(nil)
	_ csi.Source    = (*Objects)(nil)
	_ dra.Source    = (*Objects)(nil)
)

// ConfigMap reads a ConfigMap.
func (o *Objects) ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	c, err := o.client.Kubernetes().CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	return c, missing(err, "configmap", name)
}

// Secret reads a Secret.
func (o *Objects) Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	s, err := o.client.Kubernetes().CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	return s, missing(err, "secret", name)
}

// missing words a NotFound error as upstream kubelets do: with the singular resource.
func missing(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	return err
}

// Token requests a service account token.
func (o *Objects) Token(ctx context.Context, namespace, account string, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	return o.client.Kubernetes().CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
}

// TrustBundle reads a ClusterTrustBundle.
func (o *Objects) TrustBundle(ctx context.Context, name string) (*certificatesv1.ClusterTrustBundle, error) {
	return o.client.Kubernetes().CertificatesV1().ClusterTrustBundles().Get(ctx, name, metav1.GetOptions{})
}

// TrustBundles lists all ClusterTrustBundles.
func (o *Objects) TrustBundles(ctx context.Context) ([]*certificatesv1.ClusterTrustBundle, error) {
	list, err := o.client.Kubernetes().CertificatesV1().ClusterTrustBundles().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	out := make([]*certificatesv1.ClusterTrustBundle, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// Certificate returns a certificate of a pod.
func (o *Objects) Certificate(ctx context.Context, pod *corev1.Pod, volume string, source int, spec *corev1.PodCertificateProjection) (keyPEM, chain []byte, waits bool, err error) {
	keyPEM, chain, err = o.certificates.Certificate(ctx, pod, volume, source, spec)
	return keyPEM, chain, podcertificate.Waiting(err), err
}

// Claim reads a PersistentVolumeClaim.
func (o *Objects) Claim(ctx context.Context, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	return o.client.Kubernetes().CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// PersistentVolume reads a PersistentVolume.
func (o *Objects) PersistentVolume(ctx context.Context, name string) (*corev1.PersistentVolume, error) {
	return o.client.Kubernetes().CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
}

// ResourceClaim reads a ResourceClaim.
func (o *Objects) ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	return o.client.Kubernetes().ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// DeleteResourceSlices deletes what a DRA driver has published for this node.
func (o *Objects) DeleteResourceSlices(ctx context.Context, driver string) error {
	selector := fields.Set{resourcev1.ResourceSliceSelectorNodeName: o.nodeName, resourcev1.ResourceSliceSelectorDriver: driver}.AsSelector().String()
	return o.client.Kubernetes().ResourceV1().ResourceSlices().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: selector})
}

// CSIDriver returns what the API says of a CSI driver.
func (o *Objects) CSIDriver(name string) (*storagev1.CSIDriver, error) { return o.csiDrivers.Get(name) }

// PatchClaimStatus patches the status of a PersistentVolumeClaim.
func (o *Objects) PatchClaimStatus(ctx context.Context, namespace, name string, patch []byte) (*corev1.PersistentVolumeClaim, error) {
	return o.client.Kubernetes().CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// Node reads this node.
func (o *Objects) Node(ctx context.Context) (*corev1.Node, error) {
	return o.client.Kubernetes().CoreV1().Nodes().Get(ctx, o.nodeName, metav1.GetOptions{})
}

// VolumeAttachment reads a VolumeAttachment.
func (o *Objects) VolumeAttachment(ctx context.Context, name string) (*storagev1.VolumeAttachment, error) {
	return o.client.Kubernetes().StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
}

func selectField(field, value string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, value).String() }
}

// eventHandler returns an informer's handler that calls changed for objects that were added or updated, and deleted for those that were deleted.
func eventHandler[T any](changed, deleted func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { changed(obj.(T)) },
		UpdateFunc: func(_, obj any) { changed(obj.(T)) },
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			if last, ok := obj.(T); ok {
				deleted(last)
			}
		},
	}
}

// pullSecrets returns a pod's imagePullSecrets, and the names of those that could not be read.
func (k *Kubelet) pullSecrets(ctx context.Context, pod *corev1.Pod) (secrets []*corev1.Secret, missing []string) {
	for _, ref := range pod.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		s, err := k.objects.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		secrets = append(secrets, s)
	}
	return secrets, missing
}
