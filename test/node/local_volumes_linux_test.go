package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

// claim creates a claim of the default StorageClass, but for what more says in YAML of its spec.
func (s *testNamespace) claim(name, size, more string) {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.Unmarshal([]byte(more), &claim.Spec); err != nil {
		s.Fatal(err)
	}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	if _, err := s.api.CoreV1().PersistentVolumeClaims(s.name).Create(s.Context(), claim, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// claimed returns a pod that has a claim at /data, or as the device /dev/data.
func (s *testNamespace) claimed(pod, claim, script string) *corev1.Pod {
	return s.spec(pod, fmt.Sprintf(`
  volumes: [{name: data, persistentVolumeClaim: {claimName: %s}}]
  containers: [{name: main, command: [sh, -c, %q], volumeMounts: [{name: data, mountPath: /data}]}]
`, claim, script))
}

// volumeOf returns the PersistentVolume that a claim is bound to, and the path of its image.
func (s *testNamespace) volumeOf(claim string) (*corev1.PersistentVolume, string) {
	s.Helper()
	c, err := s.api.CoreV1().PersistentVolumeClaims(s.name).Get(s.Context(), claim, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	pv, err := s.api.CoreV1().PersistentVolumes().Get(s.Context(), c.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		s.Fatalf("claim %s is %s: %v", claim, c.Status.Phase, err)
	}
	return pv, filepath.Join(s.dir, "volumes", pv.Name+".img")
}

func (s *testNamespace) deleteClaim(claim string) {
	s.Helper()
	if err := s.api.CoreV1().PersistentVolumeClaims(s.name).Delete(s.Context(), claim, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

// loopDevices returns what is attached to loop devices below a directory.
func loopDevices(dir string) (list []string) {
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, f := range files {
		if data, err := os.ReadFile(f); err == nil && strings.HasPrefix(string(data), dir) {
			list = append(list, filepath.Base(strings.TrimSpace(string(data))))
		}
	}
	return list
}

// attachedTo reports whether an image is attached.
func attachedTo(image string) bool { return len(loopDevices(image)) > 0 }

// localVolumes has a claim of the default class work on the first try: its volume keeps its data over pods, its size is enforced, it grows, and it is gone with the claim.
func localVolumes(s *testNamespace) {
	s.claim("data", "64Mi", "")
	first := s.each(s.claimed("first", "data", "echo files=$(ls -A /data | wc -l); echo mode=$(stat -c %a /data); echo kept > /data/file; "+
		"dd if=/dev/zero of=/data/big bs=1M count=200 2>&1 | grep -o 'No space left on device' | sed s/^/full=/; rm /data/big; echo free=$(df -m /data | tail -1 | awk '{print ($4 > 40 && $4 < 64)}')"))["main"]
	s.expect(first, map[string]string{"files": "0", "mode": "777", "full": "No space left on device", "free": "1"})
	pv, image := s.volumeOf("data")
	if info, err := os.Stat(image); err != nil || info.Size() != 64<<20 || pv.Spec.StorageClassName != "local" {
		s.Fatalf("the image: %v %v, of class %s", info, err, pv.Spec.StorageClassName)
	}
	s.delete("first")
	s.await("the volume to be detached", func() bool { return !attachedTo(image) })

	if _, err := s.api.CoreV1().PersistentVolumeClaims(s.name).Patch(s.Context(), "data", types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"256Mi"}}}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	s.await("the volume to be expanded", func() bool {
		pv, _ := s.volumeOf("data")
		size := pv.Spec.Capacity[corev1.ResourceStorage]
		return size.Value() == 256<<20
	})
	second := s.each(s.claimed("second", "data", "echo read=$(cat /data/file); echo grown=$(df -m /data | tail -1 | awk '{print ($2 > 200)}')"))["main"]
	s.expect(second, map[string]string{"read": "kept", "grown": "1"})
	s.await("the claim to have its size", func() bool {
		claim, err := s.api.CoreV1().PersistentVolumeClaims(s.name).Get(s.Context(), "data", metav1.GetOptions{})
		size := claim.Status.Capacity[corev1.ResourceStorage]
		return err == nil && size.Value() == 256<<20 && len(claim.Status.Conditions) == 0
	})
	s.delete("second")
	s.deleteClaim("data")
	s.gone(pv, image)
}

// gone waits until a volume has been deleted, with its image.
func (s *testNamespace) gone(pv *corev1.PersistentVolume, image string) {
	s.Helper()
	s.await("volume "+pv.Name+" to be deleted", func() bool {
		_, err := s.api.CoreV1().PersistentVolumes().Get(s.Context(), pv.Name, metav1.GetOptions{})
		_, left := os.Stat(image)
		return apierrors.IsNotFound(err) && os.IsNotExist(left)
	})
	if attachedTo(image) {
		s.Errorf("%s is still attached", image)
	}
}

// localBlockVolumes has a pod write to the device of a block volume and another read from it.
func localBlockVolumes(s *testNamespace) {
	s.claim("raw", "20Mi", "volumeMode: Block")
	pod := func(name, script string) *corev1.Pod {
		return s.spec(name, fmt.Sprintf(`
  volumes: [{name: raw, persistentVolumeClaim: {claimName: raw}}]
  containers: [{name: main, command: [sh, -c, %q], volumeDevices: [{name: raw, devicePath: /dev/raw}]}]
`, script))
	}
	s.each(pod("writer", "echo kept | dd of=/dev/raw conv=fsync"))
	s.delete("writer")
	s.expect(s.each(pod("reader", "echo read=$(head -c 4 /dev/raw)"))["main"], map[string]string{"read": "kept"})
	s.delete("reader")
	pv, image := s.volumeOf("raw")
	s.deleteClaim("raw")
	s.gone(pv, image)
}

// retainedVolumes has a volume of a class that retains it stay when its claim is deleted.
func retainedVolumes(s *testNamespace) {
	retain, wait := corev1.PersistentVolumeReclaimRetain, storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: s.name}, Provisioner: "local.skiff", ReclaimPolicy: &retain, VolumeBindingMode: &wait}
	if _, err := s.api.StorageV1().StorageClasses().Create(s.Context(), class, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	s.claim("data", "20Mi", "storageClassName: "+class.Name)
	s.each(s.claimed("first", "data", "echo kept > /data/file"))
	pv, image := s.volumeOf("data")
	s.delete("first")
	s.deleteClaim("data")
	s.await("the volume to be released", func() bool {
		v, err := s.api.CoreV1().PersistentVolumes().Get(s.Context(), pv.Name, metav1.GetOptions{})
		return err == nil && v.Status.Phase == corev1.VolumeReleased && len(v.Finalizers) <= 1
	})
	if _, err := os.Stat(image); err != nil {
		s.Error(err)
	}
	// Somebody decides that it can go.
	if _, err := s.api.CoreV1().PersistentVolumes().Patch(s.Context(), pv.Name, types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	s.gone(pv, image)
}

// tooLargeVolumes has a claim that no disk has space for say so.
func tooLargeVolumes(s *testNamespace) {
	s.claim("huge", "100Ti", "")
	s.create(s.claimed("first", "huge", "true"))
	s.awaitEvent("huge", "ProvisioningFailed: failed to provision volume with StorageClass \"local\": rpc error: code = ResourceExhausted desc = node node-1 has not enough disk space: the volume needs 100Ti more, and ")
}
