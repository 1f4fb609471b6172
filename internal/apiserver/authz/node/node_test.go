package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/rbac/bootstrap"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/test/seed"
)

// test/differential/authorization/testdata/nodes.questions shows that decisions are upstream's. The tests here show that the index keeps up
// with created, updated and deleted pods and volumes.

func newPod(name, node string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: node}}
	for _, f := range change {
		f(pod)
	}
	return pod
}

func mountsSecret(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}})
	}
}

func mountsClaim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: source})
	}
}

func newVolume(name, claim string, secrets ...string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if claim != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "team", Name: claim}
	}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{}
	for i, s := range secrets {
		ref := &corev1.SecretReference{Namespace: "vault", Name: s}
		*[]**corev1.SecretReference{&v.Spec.CSI.NodeStageSecretRef, &v.Spec.CSI.NodePublishSecretRef}[i] = ref
	}
	return v
}

func get(node, resource, namespace, name string) *authz.Attributes {
	return &authz.Attributes{User: &authn.User{Username: "system:node:" + node, Groups: []string{"system:nodes"}}, Verb: "get", Resource: true,
		Plural: resource, Namespace: namespace, Name: name}
}

func TestIndexFollowsPodsAndVolumes(t *testing.T) {
	store := objectstest.New()
	a := New(store, bootstrap.NodeRules())
	expect := func(step string, want bool, at *authz.Attributes) {
		t.Helper()
		decision, _, err := a.Authorize(t.Context(), at)
		if err != nil || (decision == authz.Allow) != want {
			t.Errorf("%s: %v %v", step, decision, err)
		}
	}
	tls, vault, pv := get("n1", "secrets", "team", "tls"), get("n1", "secrets", "vault", "key"), get("n1", "persistentvolumes", "", "disk")
	store.Put(pods, newPod("web", "", mountsSecret("tls"), mountsClaim("data")))
	expect("not yet on a node", false, tls)
	store.Put(pods, newPod("web", "n1", mountsSecret("tls"), mountsClaim("data")))
	expect("bound", true, tls)
	expect("to that node", false, get("n2", "secrets", "team", "tls"))
	store.Put(pods, newPod("second", "n1", mountsSecret("tls")))
	store.Remove(pods, "team", "web")
	expect("another pod needs it still", true, tls)
	store.Remove(pods, "team", "second")
	expect("none does", false, tls)

	store.Put(volumes, newVolume("disk", "data", "key"))
	expect("a volume whose claim is unused", false, vault)
	store.Put(pods, newPod("web", "n1", mountsClaim("data")))
	expect("the volume of a claim", true, pv)
	expect("and its secret", true, vault)
	store.Put(volumes, newVolume("disk", "data", "other", "key"))
	expect("the secret has another use", true, vault)
	store.Put(volumes, newVolume("disk", "other", "key"))
	expect("the volume has another claim", false, vault)
	expect("and is not mounted", false, pv)
	store.Put(volumes, newVolume("disk", "", "key"))
	store.Remove(volumes, "", "disk")

	debug := func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "tls"}}}}}}}
	}
	store.Put(pods, newPod("web", "n1", debug))
	expect("a debug container", true, tls)
	gpu := get("n1", "resourceclaims", "team", "made")
	gpu.Group = "resource.k8s.io"
	template := func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("t")}}
	}
	store.Put(pods, newPod("gpu", "n1", template))
	expect("the claim is not made", false, gpu)
	made := func(p *corev1.Pod) {
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: ptr.To("made")}}
	}
	store.Put(pods, newPod("gpu", "n1", template, made))
	expect("the claim is made", true, gpu)
	extended := func(p *corev1.Pod) {
		p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "made"}
	}
	store.Put(pods, newPod("gpu", "n1", extended))
	expect("the claim is for an extended resource", true, gpu)
	store.Remove(pods, "team", "gpu")
	store.Remove(pods, "team", "web")
	if len(a.index.uses) != 0 || len(a.index.volumeSecrets) != 0 {
		t.Errorf("of nothing there remain %v and %v", a.index.uses, a.index.volumeSecrets)
	}
}

func TestEveryKindOfVolumeSecret(t *testing.T) {
	local, remote, old := &corev1.LocalObjectReference{Name: "s"}, &corev1.SecretReference{Namespace: "far", Name: "s"}, &corev1.SecretReference{Name: "s"}
	for name, source := range map[string]corev1.VolumeSource{
		"azureFile": {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s"}}, "cephfs": {CephFS: &corev1.CephFSVolumeSource{SecretRef: local}},
		"cinder": {Cinder: &corev1.CinderVolumeSource{SecretRef: local}}, "flex": {FlexVolume: &corev1.FlexVolumeSource{SecretRef: local}},
		"rbd": {RBD: &corev1.RBDVolumeSource{SecretRef: local}}, "scaleIO": {ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: local}},
		"iscsi": {ISCSI: &corev1.ISCSIVolumeSource{SecretRef: local}}, "storageos": {StorageOS: &corev1.StorageOSVolumeSource{SecretRef: local}},
		"csi": {CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: local}},
	} {
		store := objectstest.New()
		a := New(store, nil)
		store.Put(pods, newPod("web", "n1", func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{VolumeSource: source}} }))
		if decision, reason, _ := a.Authorize(t.Context(), get("n1", "secrets", "team", "s")); decision != authz.Allow {
			t.Errorf("a pod's %s: %s", name, reason)
		}
	}
	type persistent = corev1.PersistentVolumeSource
	for name, test := range map[string]struct {
		persistent
		namespace string
	}{
		"azureFile":           {persistent{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s"}}, "team"},
		"azureFile far":       {persistent{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", SecretNamespace: ptr.To("far")}}, "far"},
		"cephfs":              {persistent{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: old}}, "team"},
		"cephfs far":          {persistent{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: remote}}, "far"},
		"flex":                {persistent{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: old}}, "team"},
		"rbd":                 {persistent{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: remote}}, "far"},
		"scaleIO":             {persistent{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: old}}, "team"},
		"iscsi":               {persistent{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: remote}}, "far"},
		"cinder":              {persistent{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: remote}}, "far"},
		"storageos":           {persistent{StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: "far", Name: "s"}}}, "far"},
		"csi for the kubelet": {persistent{CSI: &corev1.CSIPersistentVolumeSource{NodeExpandSecretRef: remote}}, "far"},
	} {
		store := objectstest.New()
		a := New(store, nil)
		volume := newVolume("disk", "data")
		volume.Spec.PersistentVolumeSource = test.persistent
		store.Put(volumes, volume)
		store.Put(pods, newPod("web", "n1", mountsClaim("data")))
		if decision, reason, _ := a.Authorize(t.Context(), get("n1", "secrets", test.namespace, "s")); decision != authz.Allow {
			t.Errorf("a volume's %s: %s", name, reason)
		}
		other := map[string]string{"far": "team", "team": "far"}[test.namespace]
		if decision, _, _ := a.Authorize(t.Context(), get("n1", "secrets", other, "s")); decision == authz.Allow {
			t.Errorf("a volume's %s: in both namespaces", name)
		}
	}
}

// TestIndexDoesNotDependOnHistory changes pods and volumes at random and compares the index with one built from the final objects.
func TestIndexDoesNotDependOnHistory(t *testing.T) {
	seed := seed.New(t)
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(prefix string) string { return fmt.Sprint(prefix, r.IntN(3)) }
	store := objectstest.New()
	a := New(store, nil)
	for range 2000 {
		switch r.IntN(5) {
		case 0, 1:
			name, node := pick("pod"), pick("n")
			if old, ok := store.Get(pods, "team", name).(*corev1.Pod); ok && r.IntN(2) == 0 { // a later state of the same pod
				pod := old.DeepCopy()
				if pod.Spec.NodeName == "" {
					pod.Spec.NodeName = node
				}
				pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "c", ResourceClaimName: ptr.To(pick("claim"))}}
				pod.Status.Message = fmt.Sprint(r.IntN(100))
				store.Put(pods, pod)
				continue
			}
			pod := newPod(name, map[bool]string{true: node}[r.IntN(3) > 0], mountsSecret(pick("s")), mountsSecret(pick("s")), mountsClaim(pick("data")))
			pod.UID = types.UID(fmt.Sprint(r.Uint64()))
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "c", ResourceClaimTemplateName: ptr.To("t")}}
			store.Put(pods, pod)
		case 2:
			store.Put(volumes, newVolume(pick("disk"), map[bool]string{true: pick("data")}[r.IntN(3) > 0], pick("k"), pick("k")))
		case 3:
			store.Remove(pods, "team", pick("pod"))
		case 4:
			store.Remove(volumes, "", pick("disk"))
		}
	}
	fresh := New(store, nil).index
	if diff := cmp.Diff(fresh.uses, a.index.uses, cmp.AllowUnexported(use{}, key{})); diff != "" {
		t.Errorf("uses (-fresh +followed):\n%s", diff)
	}
	if diff := cmp.Diff(fresh.volumeSecrets, a.index.volumeSecrets, cmp.AllowUnexported(key{})); diff != "" {
		t.Errorf("help (-fresh +followed):\n%s", diff)
	}
}

func TestConcurrentDecisionsAndChanges(t *testing.T) {
	store := objectstest.New()
	a := New(store, bootstrap.NodeRules())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				a.Authorize(ctx, get("n1", "secrets", "vault", "key"))
				a.Authorize(ctx, get("n1", "pods", "team", "web"))
			}
		})
	}
	for range 1000 {
		store.Put(pods, newPod("web", "n1", mountsClaim("data"), mountsSecret("tls")))
		store.Put(volumes, newVolume("disk", "data", "key"))
		store.Remove(pods, "team", "web")
	}
	cancel()
	wg.Wait()
}

// BenchmarkAuthorize decides about secrets of 30,000 pods on 1,000 nodes.
func BenchmarkAuthorize(b *testing.B) {
	store := objectstest.New()
	for i := range 30_000 {
		account := func(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }
		store.Put(pods, newPod(fmt.Sprint("pod-", i), fmt.Sprint("n", i%1000), mountsSecret(fmt.Sprint("s", i%300)), account))
	}
	a := New(store, bootstrap.NodeRules())
	at := get("n7", "secrets", "team", "s7")
	b.ReportAllocs()
	for b.Loop() {
		if decision, reason, _ := a.Authorize(b.Context(), at); decision != authz.Allow {
			b.Fatal(reason)
		}
	}
	b.ReportMetric(float64(len(a.index.uses)), "entries")
}
