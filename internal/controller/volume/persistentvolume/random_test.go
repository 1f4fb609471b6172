package persistentvolume_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"skiff/internal/apitest"
	"skiff/internal/controller/controllertest"
	"skiff/internal/controller/protection"
	"skiff/internal/controller/volume/persistentvolume"
	"skiff/test/seed"
)

// Many clients create and delete claims and volumes of two classes, some of them reserved for each other, and two binders work at the same time, one of
// which is restarted: never have two claims one volume, nor two volumes one claim, and in the end nothing waits that could be bound.
func TestNeverTwoOfOne(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.New(t), 0))
	const writers, operations = 6, 60
	c := cluster{t, apitest.Start(t)}
	ctx, cancel := context.WithCancel(t.Context())
	var watching, writing sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	c.watchClaims(ctx, &watching)
	c.watchVolumes(ctx, &watching)
	controllertest.Run(t, c.Server, persistentvolume.New, protection.NewClaims, protection.NewVolumes)
	stop := controllertest.Run(t, c.Server, persistentvolume.New)
	for w := range writers {
		r := rand.New(rand.NewPCG(random.Uint64(), 0))
		writing.Go(func() { c.disturb(ctx, r, w, operations) })
	}
	for range 3 {
		stop()
		stop = controllertest.Run(t, c.Server, persistentvolume.New)
	}
	writing.Wait()
	controllertest.Eventually(t, func() string { return c.unfinished() })
}

// disturb creates and deletes claims and volumes.
func (c cluster) disturb(ctx context.Context, r *rand.Rand, writer, operations int) {
	ignore := func(err error) {
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !apierrors.IsAlreadyExists(err) {
			c.Error(err)
		}
	}
	name := func(kind string) string { return fmt.Sprintf("%s-%d-%d", kind, r.IntN(writer+2), r.IntN(operations)) }
	for i := range operations {
		size, class := fmt.Sprintf("%dGi", 1+r.IntN(3)), []string{"", "x"}[r.IntN(2)]
		switch r.IntN(8) {
		case 0, 1, 2:
			_, err := c.claims().Create(ctx, newClaim(fmt.Sprintf("c-%d-%d", writer, i), size, func(claim *corev1.PersistentVolumeClaim) {
				claim.Spec.StorageClassName = &class
				if r.IntN(5) == 0 {
					claim.Spec.VolumeName = name("v")
				}
			}), metav1.CreateOptions{})
			ignore(err)
		case 3, 4, 5:
			_, err := c.volumes().Create(ctx, newVolume(fmt.Sprintf("v-%d-%d", writer, i), size, func(v *corev1.PersistentVolume) {
				v.Spec.StorageClassName, v.Spec.PersistentVolumeReclaimPolicy = class, corev1.PersistentVolumeReclaimRetain
				if r.IntN(5) == 0 {
					v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name("c")}
				}
			}), metav1.CreateOptions{})
			ignore(err)
		case 6:
			ignore(c.claims().Delete(ctx, name("c"), metav1.DeleteOptions{}))
		default:
			v, err := c.volumes().Get(ctx, name("v"), metav1.GetOptions{})
			if err == nil && v.Status.Phase == corev1.VolumeReleased {
				patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"spec":{"claimRef":null}}`, v.ResourceVersion)
				_, err = c.volumes().Patch(ctx, v.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			}
			ignore(err)
		}
	}
}

// watchClaims fails the test if two claims that are there at the same time are bound to one volume.
func (c cluster) watchClaims(ctx context.Context, running *sync.WaitGroup) {
	events, err := c.claims().Watch(ctx, metav1.ListOptions{})
	c.ok(err)
	running.Go(func() {
		defer events.Stop()
		owner, volumeOf := map[string]types.UID{}, map[types.UID]string{}
		for e := range events.ResultChan() {
			claim, ok := e.Object.(*corev1.PersistentVolumeClaim)
			if !ok {
				return
			}
			name := claim.Spec.VolumeName
			if e.Type == watch.Deleted || claim.Status.Phase != corev1.ClaimBound {
				if owner[name] == claim.UID {
					delete(owner, name)
				}
				continue
			}
			if other := owner[name]; other != "" && other != claim.UID {
				c.Errorf("two claims are bound to volume %s", name)
			}
			if before := volumeOf[claim.UID]; before != "" && before != name {
				c.Errorf("claim %s was bound to %s, and then to %s", claim.Name, before, name)
			}
			owner[name], volumeOf[claim.UID] = claim.UID, name
		}
	})
}

// watchVolumes fails the test if two volumes are Bound to one claim at the same time.
func (c cluster) watchVolumes(ctx context.Context, running *sync.WaitGroup) {
	events, err := c.volumes().Watch(ctx, metav1.ListOptions{})
	c.ok(err)
	running.Go(func() {
		defer events.Stop()
		bound := map[types.UID]string{}
		for e := range events.ResultChan() {
			volume, ok := e.Object.(*corev1.PersistentVolume)
			if !ok {
				return
			}
			for uid, name := range bound {
				if name == volume.Name {
					delete(bound, uid)
				}
			}
			if e.Type == watch.Deleted || volume.Status.Phase != corev1.VolumeBound || volume.Spec.ClaimRef == nil {
				continue
			}
			uid := volume.Spec.ClaimRef.UID
			if other := bound[uid]; other != "" {
				c.Errorf("volumes %s and %s are bound to one claim", other, volume.Name)
			}
			bound[uid] = volume.Name
		}
	})
}

// unfinished says which claims and volumes are not as they have to be in the end.
func (c cluster) unfinished() string {
	claims, err := c.claims().List(c.Context(), metav1.ListOptions{})
	c.ok(err)
	volumes, err := c.volumes().List(c.Context(), metav1.ListOptions{})
	c.ok(err)
	var wrong []string
	find := func(name string) *corev1.PersistentVolume {
		if i := slices.IndexFunc(volumes.Items, func(v corev1.PersistentVolume) bool { return v.Name == name }); i >= 0 {
			return &volumes.Items[i]
		}
		return nil
	}
	uids := map[types.UID]string{}
	for _, claim := range claims.Items {
		uids[claim.UID] = claim.Spec.VolumeName
		v := find(claim.Spec.VolumeName)
		switch {
		case claim.Status.Phase == corev1.ClaimBound:
			if v == nil || v.Spec.ClaimRef == nil || v.Spec.ClaimRef.UID != claim.UID || v.Status.Phase != corev1.VolumeBound {
				wrong = append(wrong, "claim "+claim.Name+" is Bound to a volume that does not say so")
			}
		case claim.Spec.VolumeName != "":
			if v != nil && v.Spec.ClaimRef == nil && suits(&claim, v) {
				wrong = append(wrong, "claim "+claim.Name+" does not get its volume "+v.Name)
			}
		default:
			for i := range volumes.Items {
				if v := &volumes.Items[i]; v.Spec.ClaimRef == nil && suits(&claim, v) {
					wrong = append(wrong, "claim "+claim.Name+" could have "+v.Name)
				}
			}
		}
	}
	for _, v := range volumes.Items {
		if ref := v.Spec.ClaimRef; ref != nil && ref.UID != "" {
			if name, alive := uids[ref.UID]; (!alive && v.Status.Phase != corev1.VolumeReleased) || alive && name != v.Name {
				wrong = append(wrong, fmt.Sprintf("volume %s is %s of a claim that is bound to %q", v.Name, v.Status.Phase, name))
			}
		}
	}
	return strings.Join(wrong, "\n")
}

func suits(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) bool {
	size, wanted := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.Cmp(wanted) >= 0 && v.Spec.StorageClassName == *claim.Spec.StorageClassName
}
