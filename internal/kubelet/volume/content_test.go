//go:build linux

package volume

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"
)

func TestConfigMap(t *testing.T) {
	f := newFixture(t)
	f.source.set("web", map[string]string{"a": "1", "b": "2"})
	f.source.configMaps["web"].BinaryData = map[string][]byte{"c": {0xff}}
	whole, chosen := newPod("1", configMap("v", "web")), newPod("2", configMap("v", "web",
		corev1.KeyToPath{Key: "a", Path: "deep/er/x"}, corev1.KeyToPath{Key: "b", Path: "deep/y", Mode: ptr(int32(0o400))}))
	f.setUp(whole)
	f.setUp(chosen)
	f.shows(whole, "v", map[string]string{"a": "1", "b": "2", "c": "\xff"})
	f.shows(chosen, "v", map[string]string{"deep/er/x": "1", "deep/y": "2"})
	for name, want := range map[string]string{"deep/er/x": "644 0:0", "deep/y": "400 0:0", "deep": "755 0:0"} {
		if got := owner(t, f.path(chosen, "v", name)); got != want {
			t.Errorf("%s has %s, want %s", name, got, want)
		}
	}
	if target, err := os.Readlink(f.path(whole, "v", "a")); target != "..data/a" {
		t.Errorf("a is a link to %q (%v)", target, err)
	}
	if target, err := os.Readlink(f.path(whole, "v", "..data")); !strings.HasPrefix(target, "..2026_01_02_03_04_05.") {
		t.Errorf("..data is a link to %q (%v)", target, err)
	}
	before := inode(t, f.path(whole, "v", "..data/"))
	f.setUp(whole)
	if inode(t, f.path(whole, "v", "..data/")) != before {
		t.Error("an unchanged config map was written again")
	}

	f.source.set("web", map[string]string{"b": "two", "d": "4"})
	f.setUp(whole)
	f.shows(whole, "v", map[string]string{"b": "two", "d": "4"})
	if entries, _ := os.ReadDir(f.path(whole, "v")); len(entries) != 4 { // ..data, its directory, b, d
		t.Errorf("left in the volume: %v", entries)
	}
	// Its items name a key that is gone: what was shown stays.
	failure(t, f.SetUp(context.Background(), chosen), `MountVolume.SetUp failed for volume "v" : configmap references non-existent config key: a`)
	f.shows(chosen, "v", map[string]string{"deep/er/x": "1", "deep/y": "2"})
}

func inode(t *testing.T, path string) uint64 {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Stat(path, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

func TestMissingConfigMaps(t *testing.T) {
	f := newFixture(t)
	failure(t, f.SetUp(context.Background(), newPod("1", configMap("v", "none"))), `MountVolume.SetUp failed for volume "v" : configmaps "none" not found`)
	may := configMap("v", "none", corev1.KeyToPath{Key: "a", Path: "a"})
	may.ConfigMap.Optional = ptr(true)
	pod := newPod("2", may)
	f.setUp(pod)
	f.shows(pod, "v", map[string]string{})
	f.source.set("none", map[string]string{"b": "1"})
	f.setUp(pod)
	f.shows(pod, "v", map[string]string{})
	f.source.set("none", map[string]string{"a": "1"})
	f.setUp(pod)
	f.shows(pod, "v", map[string]string{"a": "1"})
	f.source.down = errors.New("no route to host")
	failure(t, f.SetUp(context.Background(), pod), `MountVolume.SetUp failed for volume "v" : no route to host`)
	f.shows(pod, "v", map[string]string{"a": "1"})
	if _, err := f.Mounts(pod, &pod.Spec.Containers[0], nil); err != nil {
		t.Errorf("a volume that was ready is not any more: %v", err)
	}
	f.source.down = nil
	none := configMap("v", "none")
	none.ConfigMap.DefaultMode = nil
	failure(t, f.SetUp(context.Background(), newPod("3", none)), `MountVolume.SetUp failed for volume "v" : no defaultMode used, not even the default value for it`)
}

// TestNoHalfUpdates reads two keys over and over while both change: whoever opens ..data once sees one version of both.
func TestNoHalfUpdates(t *testing.T) {
	f := newFixture(t)
	set := func(s string) { f.source.set("web", map[string]string{"a": s, "b": s}) }
	set("0")
	pod := newPod("1", configMap("v", "web"))
	f.setUp(pod)
	dir, stop := f.path(pod, "v"), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				if n < 10 {
					t.Errorf("only read %d times", n)
				}
				return
			default:
			}
			version, err := os.OpenRoot(filepath.Join(dir, "..data"))
			if os.IsNotExist(err) {
				continue // the version was exchanged while its name was looked up
			}
			if err != nil {
				t.Error(err)
				return
			}
			a, errA := version.ReadFile("a")
			b, errB := version.ReadFile("b")
			version.Close()
			if err := errors.Join(errA, errB); err != nil {
				if !os.IsNotExist(errA) && !os.IsNotExist(errB) { // removed after it was opened
					t.Error(err)
				}
			} else if string(a) != string(b) {
				t.Errorf("a is %s, b is %s", a, b)
			}
			if _, err := os.Readlink(filepath.Join(dir, "a")); err != nil {
				t.Errorf("a is not there: %v", err)
			}
		}
	})
	for i := range 200 {
		set(string(rune('A' + i%26)))
		f.setUp(pod)
	}
	close(stop)
	wg.Wait()
}

func TestSecret(t *testing.T) {
	f := newFixture(t)
	f.source.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"password": []byte("x")}}
	secret := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", DefaultMode: ptr(int32(0o400))}}}
	pod := withGroup(newPod("1", secret), 77)
	f.setUp(pod)
	f.shows(pod, "v", map[string]string{"password": "x"})
	var s unix.Statfs_t
	if err := unix.Statfs(f.path(pod, "v"), &s); err != nil || s.Type != unix.TMPFS_MAGIC {
		t.Errorf("a secret is on a file system of type %x (%v)", s.Type, err)
	}
	if got := owner(t, f.path(pod, "v", "password")); got != "440 0:77" {
		t.Errorf("the file has %s", got)
	}
	if got := owner(t, f.path(pod, "v", "..data")); got != "2775 0:77" && got != "2755 0:77" {
		t.Errorf("its directory has %s", got)
	}
	secret.Secret.Items = []corev1.KeyToPath{{Key: "user", Path: "u"}}
	failure(t, f.SetUp(context.Background(), newPod("2", secret)), `MountVolume.SetUp failed for volume "v" : references non-existent secret key: user`)
	secret.Secret.SecretName = "other"
	failure(t, f.SetUp(context.Background(), newPod("2", secret)), `MountVolume.SetUp failed for volume "v" : secrets "other" not found`)
	secret.Secret.Optional = ptr(true)
	f.setUp(newPod("2", secret))
}

func TestDownwardAPI(t *testing.T) {
	f := newFixture(t)
	field := func(path, field string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: path, FieldRef: &corev1.ObjectFieldSelector{FieldPath: field}}
	}
	amount := func(path, name, divisor string) corev1.DownwardAPIVolumeFile {
		d := resource.Quantity{}
		if divisor != "" {
			d = resource.MustParse(divisor)
		}
		return corev1.DownwardAPIVolumeFile{Path: path, ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: name, Divisor: d}}
	}
	secret := field("uid", "metadata.uid")
	secret.Mode = ptr(int32(0o400))
	pod := newPod("1", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: ptr(int32(0o644)),
		Items: []corev1.DownwardAPIVolumeFile{field("name", "metadata.name"), field("pod/labels", "metadata.labels"), field("one", "metadata.annotations['a']"), secret,
			amount("request", "requests.cpu", "1m"), amount("limit", "limits.memory", "1Mi"), amount("cores", "limits.cpu", "")}}}})
	pod.Labels, pod.Annotations = map[string]string{"b": "2", "a": "x\"y"}, map[string]string{"a": "note"}
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("250m")}
	f.setUp(pod)
	want := map[string]string{"name": "p-1", "pod/labels": "a=\"x\\\"y\"\nb=\"2\"", "one": "note", "uid": "1", "request": "250", "limit": "1024", "cores": "2"}
	f.shows(pod, "v", want)
	if got := owner(t, f.path(pod, "v", "uid")); got != "400 0:0" {
		t.Errorf("uid has %s", got)
	}
	pod.Labels["c"] = "3"
	f.setUp(pod)
	want["pod/labels"] += "\nc=\"3\""
	f.shows(pod, "v", want)
	bad := newPod("2", corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{DefaultMode: ptr(int32(0o644)),
		Items: []corev1.DownwardAPIVolumeFile{field("ip", "status.podIP")}}}})
	failure(t, f.SetUp(context.Background(), bad), `MountVolume.SetUp failed for volume "v" : unsupported fieldPath: status.podIP`)
}

func projected(sources ...corev1.VolumeProjection) corev1.Volume {
	return corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: sources, DefaultMode: ptr(int32(0o644))}}}
}

func tokenSource(audience string, seconds int64) corev1.VolumeProjection {
	return corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: audience, ExpirationSeconds: &seconds}}
}

func TestProjected(t *testing.T) {
	f := newFixture(t)
	f.source.set("ca", map[string]string{"ca.crt": "authority", "rest": "x"})
	f.source.secrets["s"] = &corev1.Secret{Data: map[string][]byte{"password": []byte("x")}}
	anchor := func(s string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(s)}))
	}
	f.source.bundles = []*certificatesv1.ClusterTrustBundle{
		{ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"l": "1"}}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "s", TrustBundle: "comment\n" + anchor("B") + anchor("A")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "two", Labels: map[string]string{"l": "1"}}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "s", TrustBundle: anchor("B") + anchor("C")}},
		{ObjectMeta: metav1.ObjectMeta{Name: "three"}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: "t", TrustBundle: anchor("D")}},
	}
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod := newPod("1", projected(
		corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("ca"), Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named("s")}},
		corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: named("none"), Optional: ptr(true)}},
		corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}}}}},
		tokenSource("vault", 3600),
		corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr("one"), Path: "one.pem"}},
		corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: ptr("s"), LabelSelector: &metav1.LabelSelector{}, Path: "all.pem"}},
		corev1.VolumeProjection{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: ptr("s"), Optional: ptr(true), Path: "none.pem"}},
	))
	f.setUp(pod)
	f.shows(pod, "v", map[string]string{"ca.crt": "authority", "password": "x", "namespace": "n", "token": "token 1 of n/robot for p-1 [vault]",
		"one.pem": anchor("A") + anchor("B"), "all.pem": anchor("A") + anchor("B") + anchor("C"), "none.pem": ""})
	if got := owner(t, f.path(pod, "v", "token")); got != "644 0:0" {
		t.Errorf("the token has %s", got)
	}
	for want, source := range map[string]corev1.VolumeProjection{
		`secrets "none" not found`: {Secret: &corev1.SecretProjection{LocalObjectReference: named("none")}},
		"combination of signerName and labelSelector matched zero ClusterTrustBundles": {ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: ptr("s"), Path: "x"}},
		`while getting ClusterTrustBundle: clustertrustbundles "x" not found`:          {ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr("x"), Path: "x"}},
		"ClusterTrustBundle projection requires either name or signerName to be set":   {ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Path: "x"}},
		"denied": {PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/strict", KeyPath: "key"}},
	} {
		failure(t, f.SetUp(context.Background(), newPod("2", projected(source))), `MountVolume.SetUp failed for volume "v" : `+want)
	}
}

func TestWhoMayReadTokens(t *testing.T) {
	f := newFixture(t)
	user := func(pod *corev1.Pod, uid int64) *corev1.Pod {
		if pod.Spec.SecurityContext == nil {
			pod.Spec.SecurityContext = &corev1.PodSecurityContext{}
		}
		pod.Spec.SecurityContext.RunAsUser = &uid
		return pod
	}
	v := projected(tokenSource("", 3600))
	two := user(newPod("two", v), 1000)
	two.Spec.InitContainers = []corev1.Container{{Name: "i", SecurityContext: &corev1.SecurityContext{RunAsUser: ptr(int64(2000))}}}
	for want, pod := range map[string]*corev1.Pod{
		"600 1000:0":  user(newPod("user", v), 1000),
		"640 0:55":    withGroup(newPod("group", v), 55),
		"640 1000:55": user(withGroup(newPod("both", v), 55), 1000),
		"644 0:0":     two,
	} {
		f.setUp(pod)
		if got := owner(t, f.path(pod, "v", "token")); got != want {
			t.Errorf("the token of pod %s has %s, want %s", pod.UID, got, want)
		}
	}
}

// A pod's certificate is in one file with its key, in two, or in three, closed to others as tokens are; a volume whose signer is slow only waits.
func TestCertificates(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", projected(
		tokenSource("", 3600),
		corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/signer", CredentialBundlePath: "all/bundle.pem"}},
		corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/signer", KeyPath: "key.pem", CertificateChainPath: "chain.pem"}}))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr(int64(1000))}
	f.setUp(pod)
	of := func(i int) string { return fmt.Sprintf("of p-1, volume v, source %d\n", i) }
	f.shows(pod, "v", map[string]string{"token": "token 1 of n/robot for p-1 []", "all/bundle.pem": "key " + of(1) + "chain " + of(1), "key.pem": "key " + of(2), "chain.pem": "chain " + of(2)})
	if got := owner(t, f.path(pod, "v", "key.pem")); got != "600 1000:0" {
		t.Errorf("the key has %s", got)
	}
	slow := corev1.VolumeProjection{PodCertificate: &corev1.PodCertificateProjection{SignerName: "example.com/slow", KeyPath: "key"}}
	missing := corev1.VolumeProjection{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "none"}}}
	for waits, v := range map[bool]corev1.Volume{true: projected(slow), false: projected(slow, missing)} {
		if failures := Failures(f.SetUp(context.Background(), newPod("2", v))); len(failures) != 1 || failures[0].Waits != waits {
			t.Errorf("failures %v, waits %v", failures, !waits)
		}
	}
}

func TestTokensAreRenewed(t *testing.T) {
	f := newFixture(t)
	pod := newPod("1", projected(tokenSource("", 3600)))
	token := func(want string) {
		t.Helper()
		f.setUp(pod)
		if got, _ := os.ReadFile(f.path(pod, "v", "token")); !strings.HasPrefix(string(got), want+" ") {
			t.Errorf("after %v the token is %q, want %s", f.clock.Now().Sub(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), got, want)
		}
	}
	pass := func(d time.Duration) { f.clock.SetTime(f.clock.Now().Add(d)) }
	token("token 1")
	pass(47 * time.Minute)
	token("token 1")
	pass(2 * time.Minute) // past 80 % of an hour
	token("token 2")
	pass(49 * time.Minute)
	f.source.down = errors.New("no route to host")
	token("token 2") // still good
	pass(12 * time.Minute)
	failure(t, f.SetUp(context.Background(), pod), `MountVolume.SetUp failed for volume "v" : token of service account n/robot expired and refresh failed: no route to host`)
	failure(t, f.SetUp(context.Background(), newPod("2", projected(tokenSource("", 3600)))), `MountVolume.SetUp failed for volume "v" : failed to fetch token: no route to host`)
	f.source.down, f.source.life = nil, 365*24*time.Hour
	token("token 3")
	pass(23 * time.Hour)
	token("token 3")
	pass(time.Hour + time.Minute) // a day is enough for any token
	token("token 4")
	if err := f.TearDown(context.Background(), pod.UID); err != nil {
		t.Fatal(err)
	}
	if n := len(f.tokens.cached); n != 0 {
		t.Errorf("%d tokens are kept for pods that are gone", n)
	}
}

func TestNestedVolumes(t *testing.T) {
	f := newFixture(t)
	f.source.set("web", map[string]string{"a": "1"})
	pod := newPod("1", configMap("outer", "web"), emptyDir("inner"))
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "outer", MountPath: "/etc/web"}, {Name: "inner", MountPath: "/etc/web/run/x"},
		{Name: "inner", MountPath: "/etc/web/run/x/deeper"}, {Name: "inner", MountPath: "/etc/web2"}}
	f.setUp(pod)
	if info, err := os.Stat(f.path(pod, "outer", "run/x")); err != nil || !info.IsDir() {
		t.Errorf("no place to mount the inner volume: %v", err)
	}
	if _, err := os.Stat(f.path(pod, "outer", "run/x/deeper")); err == nil {
		t.Error("a place was made that belongs into the inner volume")
	}
	f.source.set("web", map[string]string{"b": "1"})
	f.setUp(pod)
	f.shows(pod, "outer", map[string]string{"b": "1"})
	if _, err := os.Stat(f.path(pod, "outer", "run/x")); err != nil {
		t.Errorf("an update removed the place: %v", err)
	}
}

func TestPathsInVolumes(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"", "/a", "..", "../a", "a/../b", "..a", "..data", "a/..", ".", "./", strings.Repeat("a", 256), strings.Repeat("a/", 2050) + "b"} {
		if err := publish(dir, files{p: {}}, time.Now(), func() error { return nil }); err == nil {
			t.Errorf("%q is a good path", p)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("bad paths left %v", entries)
	}
	for _, p := range []string{"a", "./b", "c//d", "...", "a..b", ".hidden", "x/..y", strings.Repeat("a", 255)} {
		if err := publish(dir, files{p: {data: []byte("x"), mode: 0o644}}, time.Now(), func() error { return nil }); err != nil && p != "..." {
			t.Errorf("%q: %v", p, err)
		} else if p == "..." && err == nil {
			t.Error("... begins with ..")
		}
	}
}

// TestPublishAfterAKill continues where a process was killed: with a link that was not renamed, and a directory that nothing names.
func TestPublishAfterAKill(t *testing.T) {
	dir := t.TempDir()
	show := func(s string) {
		t.Helper()
		if err := publish(dir, files{"a": {data: []byte(s), mode: 0o4755}}, time.Now(), func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "a")); string(got) != s {
			t.Fatalf("a is %q (%v)", got, err)
		}
	}
	show("1")
	if got := owner(t, filepath.Join(dir, "a")); got != "4755 0:0" {
		t.Errorf("a has %s", got)
	}
	stray := filepath.Join(dir, "..2020_01_01_00_00_00.1")
	if err := errors.Join(os.Mkdir(stray, 0o755), os.Symlink(filepath.Base(stray), filepath.Join(dir, "..data_tmp")), os.Remove(filepath.Join(dir, "a"))); err != nil {
		t.Fatal(err)
	}
	show("1")
	show("2")
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("left: %v", entries)
	}
	failed := errors.New("no")
	if err := publish(dir, files{"a": {data: []byte("3")}}, time.Now(), func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("finishing failed: %v", err)
	}
	show("2")
	if entries, _ := os.ReadDir(dir); len(entries) != 3 {
		t.Errorf("left: %v", entries)
	}
}
