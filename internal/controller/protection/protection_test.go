package protection

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
)

func TestUses(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "n"}}
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "1"}, Spec: corev1.PodSpec{NodeName: "node",
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}}}
		if change != nil {
			change(p)
		}
		return p
	}
	yes, zero := true, int64(0)
	own := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "p-v", Namespace: "n", OwnerReferences: []metav1.OwnerReference{{Kind: "Pod", Name: "p", UID: "1", Controller: &yes}}}}
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	}
	for _, c := range []struct {
		what  string
		pod   *corev1.Pod
		claim *corev1.PersistentVolumeClaim
		want  bool
	}{
		{"a pod on a node", pod(nil), claim, true},
		{"a pod on no node", pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), claim, false},
		{"a pod that has ended", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), claim, true},
		{"a pod with another claim", pod(func(p *corev1.Pod) { p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "d" }), claim, false},
		{"a pod with a claim of its own", pod(ephemeral), own, true},
		{"a pod with somebody else's claim of that name", pod(ephemeral), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "p-v"}}, false},
		{"a pod that the node is done with", pod(func(p *corev1.Pod) {
			ephemeral(p)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, &zero
		}), own, false},
	} {
		if got := uses(c.pod, c.claim); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

// A deleted claim goes when the last pod that uses it is gone, and at once if none does.
func TestClaims(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, NewClaims)
	api := server.Client().CoreV1()
	claims := api.PersistentVolumeClaims("default")
	for _, name := range []string{"used", "unused"} {
		_, err := claims.Create(t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}}, metav1.CreateOptions{})
		must(t, err)
	}
	none := int64(0)
	_, err := api.Pods("default").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "node", TerminationGracePeriodSeconds: &none,
		Containers: []corev1.Container{{Name: "c", Image: "i"}},
		Volumes:    []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "used"}}}}}}, metav1.CreateOptions{})
	must(t, err)
	gone := func(name string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			if _, err := claims.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return name + " is still there"
			}
			return ""
		})
	}
	must(t, claims.Delete(t.Context(), "used", metav1.DeleteOptions{}))
	must(t, claims.Delete(t.Context(), "unused", metav1.DeleteOptions{}))
	gone("unused")
	if claim, err := claims.Get(t.Context(), "used", metav1.GetOptions{}); err != nil || claim.DeletionTimestamp == nil || len(claim.Finalizers) != 1 {
		t.Fatalf("a claim in use: %v, %v", claim, err)
	}
	must(t, api.Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{GracePeriodSeconds: &none}))
	gone("used")
}

// A deleted volume goes when it is no longer bound; a volume without the finalizer gets it.
func TestVolumes(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, NewVolumes)
	volumes := server.Client().CoreV1().PersistentVolumes()
	volume, err := volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/v"}}}}, metav1.CreateOptions{})
	must(t, err)
	volume.Status.Phase = corev1.VolumeBound
	volume, err = volumes.UpdateStatus(t.Context(), volume, metav1.UpdateOptions{})
	must(t, err)
	volume.Finalizers = nil
	volume, err = volumes.Update(t.Context(), volume, metav1.UpdateOptions{})
	must(t, err)
	controllertest.Eventually(t, func() string {
		if volume, err = volumes.Get(t.Context(), "v", metav1.GetOptions{}); err != nil || len(volume.Finalizers) != 1 {
			return "it is not protected"
		}
		return ""
	})
	must(t, volumes.Delete(t.Context(), "v", metav1.DeleteOptions{}))
	volume, err = volumes.Get(t.Context(), "v", metav1.GetOptions{})
	must(t, err)
	volume.Status.Phase = corev1.VolumeReleased
	_, err = volumes.UpdateStatus(t.Context(), volume, metav1.UpdateOptions{})
	must(t, err)
	controllertest.Eventually(t, func() string {
		if _, err := volumes.Get(t.Context(), "v", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
}

// A deleted class goes when the last claim that names it is gone.
func TestClasses(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, NewClasses)
	classes, volumes := server.Client().StorageV1().VolumeAttributesClasses(), server.Client().CoreV1().PersistentVolumes()
	name := "fast"
	_, err := classes.Create(t.Context(), &storagev1.VolumeAttributesClass{ObjectMeta: metav1.ObjectMeta{Name: name}, DriverName: "d.example", Parameters: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{VolumeAttributesClassName: &name,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d.example", VolumeHandle: "h"}}}}, metav1.CreateOptions{})
	must(t, err)
	controllertest.Eventually(t, func() string {
		if class, err := classes.Get(t.Context(), name, metav1.GetOptions{}); err != nil || len(class.Finalizers) != 1 {
			return "it is not protected"
		}
		return ""
	})
	must(t, classes.Delete(t.Context(), name, metav1.DeleteOptions{}))
	if class, err := classes.Get(t.Context(), name, metav1.GetOptions{}); err != nil || class.DeletionTimestamp == nil {
		t.Fatalf("a class in use: %v, %v", class, err)
	}
	volume, err := volumes.Get(t.Context(), "v", metav1.GetOptions{})
	must(t, err)
	volume.Finalizers = nil
	_, err = volumes.Update(t.Context(), volume, metav1.UpdateOptions{})
	must(t, err)
	must(t, volumes.Delete(t.Context(), "v", metav1.DeleteOptions{}))
	controllertest.Eventually(t, func() string {
		if _, err := classes.Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "it is still there"
		}
		return ""
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
