package main

import (
	"context"
	"fmt"
	"hash/fnv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "sample/api/v1"
)

// finalizer keeps a Site until it is no longer in the directory, which is in another namespace and so is not garbage of the Site.
const finalizer = "sample.example.com/directory"

// reconciler makes of each Site what it asks for.
type reconciler struct {
	client.Client
	directory client.ObjectKey // the ConfigMap that lists all Sites
}

// register has a manager run the reconciler.
func (r *reconciler) register(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).For(&v1.Site{}).Owns(&corev1.ConfigMap{}).Owns(&appsv1.Deployment{}).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	site := &v1.Site{}
	if err := r.Get(ctx, request.NamespacedName, site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := site.DeepCopyObject().(*v1.Site)
	if !site.DeletionTimestamp.IsZero() {
		if !controllerutil.RemoveFinalizer(site, finalizer) {
			return ctrl.Result{}, nil
		}
		if err := r.list(ctx, site, ""); err != nil {
			return ctrl.Result{}, err
		}
		return ctrl.Result{}, client.IgnoreNotFound(r.Patch(ctx, site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	}
	if controllerutil.AddFinalizer(site, finalizer) {
		return ctrl.Result{}, r.Patch(ctx, site, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})) // whose event comes here again
	}
	if err := r.list(ctx, site, fmt.Sprintf("%d pages on port %d", len(site.Spec.Pages), site.Spec.Port)); err != nil {
		return ctrl.Result{}, err
	}
	deployment, err := r.apply(ctx, site)
	if err != nil {
		return ctrl.Result{}, err
	}
	observe(site, deployment)
	if equality.Semantic.DeepEqual(before.Status, site.Status) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.Status().Patch(ctx, site, client.MergeFrom(before))
}

// list writes what the directory says of a Site; nothing if text is empty.
func (r *reconciler) list(ctx context.Context, site *v1.Site, text string) error {
	directory := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.directory.Namespace, Name: r.directory.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, directory, func() error {
		key := site.Namespace + "." + site.Name
		if text == "" {
			delete(directory.Data, key)
			return nil
		}
		if directory.Data == nil {
			directory.Data = map[string]string{}
		}
		directory.Data[key] = text
		return nil
	})
	return err
}

// apply creates or updates the ConfigMap and the Deployment of a Site.
func (r *reconciler) apply(ctx context.Context, site *v1.Site) (*appsv1.Deployment, error) {
	same := metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}
	pages := &corev1.ConfigMap{ObjectMeta: same}
	if _, err := controllerutil.CreateOrUpdate(ctx, r.Client, pages, func() error {
		pages.Data = site.Spec.Pages
		return controllerutil.SetControllerReference(site, pages, r.Scheme())
	}); err != nil {
		return nil, err
	}
	deployment := &appsv1.Deployment{ObjectMeta: same}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error {
		labels := map[string]string{"site": site.Name}
		deployment.Spec.Replicas = site.Spec.Replicas
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		template := &deployment.Spec.Template
		template.Labels = labels
		template.Annotations = map[string]string{"sample.example.com/pages": sum(site.Spec.Pages)} // new pages, new pods
		if len(template.Spec.Containers) == 0 {
			template.Spec.Containers = make([]corev1.Container, 1)
		}
		server := &template.Spec.Containers[0] // whose defaults stay
		server.Name, server.Image = "httpd", site.Spec.Image
		server.Command = []string{"httpd", "-f", "-p", fmt.Sprint(site.Spec.Port), "-h", "/www"}
		server.VolumeMounts = []corev1.VolumeMount{{Name: "pages", MountPath: "/www"}}
		if server.ReadinessProbe == nil {
			server.ReadinessProbe = &corev1.Probe{}
		}
		server.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(site.Spec.Port)}}
		if len(template.Spec.Volumes) == 0 {
			template.Spec.Volumes = []corev1.Volume{{Name: "pages", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}}
		}
		template.Spec.Volumes[0].ConfigMap.Name = pages.Name
		return controllerutil.SetControllerReference(site, deployment, r.Scheme())
	})
	return deployment, err
}

// sum returns a text that changes with the pages.
func sum(pages map[string]string) string {
	h := fnv.New64a()
	fmt.Fprint(h, pages) // which prints maps in the order of their keys
	return fmt.Sprintf("%x", h.Sum64())
}

// observe sets the status of a Site to what its Deployment says.
func observe(site *v1.Site, deployment *appsv1.Deployment) {
	status := &site.Status
	status.ObservedGeneration = site.Generation
	status.Replicas, status.ReadyReplicas, status.Selector = deployment.Status.Replicas, deployment.Status.ReadyReplicas, "site="+site.Name
	available := metav1.Condition{Type: "Available", Status: metav1.ConditionFalse, Reason: "WaitingForReplicas", ObservedGeneration: site.Generation,
		Message: fmt.Sprintf("%d of %d replicas are ready", status.ReadyReplicas, *deployment.Spec.Replicas)}
	if deployment.Status.ObservedGeneration == deployment.Generation && status.ReadyReplicas >= *deployment.Spec.Replicas &&
		deployment.Status.UpdatedReplicas >= *deployment.Spec.Replicas {
		available.Status, available.Reason = metav1.ConditionTrue, "ReplicasReady"
	}
	meta.SetStatusCondition(&status.Conditions, available)
}
