package node

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// spec returns a pod from the YAML of its spec, in which busybox containers are abbreviated.
func (s *testNamespace) spec(name, text string) *corev1.Pod {
	s.Helper()
	p := s.parse("metadata: {name: " + name + "}\nspec:\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 1\n" + text)
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Image, c.ImagePullPolicy = "busybox", corev1.PullIfNotPresent
	}
	return p
}

func emptyDir(s *testNamespace) {
	p := s.spec("scratch", `
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}
  containers:
  - name: one
    command: [sh, -c, "echo mode=$(stat -c %a /disk); echo kind=$(stat -fc %T /memory); echo size=$(df -k /memory | tail -1 | awk '{print $2}'); echo from one > /disk/file; until [ -e /memory/done ]; do sleep 0.1; done"]
    volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]
  - name: two
    command: [sh, -c, "until [ -e /seen/file ]; do sleep 0.1; done; echo read=$(cat /seen/file); touch /seen/no 2>/dev/null && echo written=yes; touch /memory/done"]
    volumeMounts: [{name: disk, mountPath: /seen, readOnly: true}, {name: memory, mountPath: /memory}]
`)
	got := s.each(p)
	s.expect(got["one"], map[string]string{"mode": "777", "kind": "tmpfs", "size": "8192"})
	s.expect(got["two"], map[string]string{"read": "from one", "written": ""})
	// It is there for as long as the pod is, not longer.
	dirs, err := filepath.Glob(filepath.Join(s.dir, "kubelet", "pods", string(s.get("scratch").UID)))
	if err != nil || len(dirs) != 1 {
		s.Errorf("the pod's directory: %v, %v", dirs, err)
	}
	s.delete("scratch")
	s.await("the pod's directory to be gone", func() bool { _, err := os.Stat(dirs[0]); return os.IsNotExist(err) })
}

func hostPath(s *testNamespace) {
	dir := s.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("the node's\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	p := s.spec("host", strings.ReplaceAll(`
  volumes:
  - {name: dir, hostPath: {path: DIR, type: Directory}}
  - {name: file, hostPath: {path: DIR/file, type: File}}
  - {name: made, hostPath: {path: DIR/made, type: DirectoryOrCreate}}
  - {name: new, hostPath: {path: DIR/new, type: FileOrCreate}}
  containers:
  - name: main
    command: [sh, -c, "echo dir=$(cat /dir/file); echo file=$(cat /one-file); echo pods > /made/file; echo pods > /new"]
    volumeMounts: [{name: dir, mountPath: /dir}, {name: file, mountPath: /one-file}, {name: made, mountPath: /made}, {name: new, mountPath: /new}]
`, "DIR", dir))
	s.expect(s.each(p)["main"], map[string]string{"dir": "the node's", "file": "the node's"})
	for _, f := range []string{"made/file", "new"} {
		if got := s.read(filepath.Join(dir, f)); got != "pods\n" {
			s.Errorf("%s has %q", f, got)
		}
	}
	q := s.spec("wrong", `
  volumes: [{name: file, hostPath: {path: `+dir+`, type: File}}]
  containers: [{name: main, command: ["true"], volumeMounts: [{name: file, mountPath: /file}]}]
`)
	s.create(q)
	s.awaitEvent("wrong", `FailedMount: MountVolume.SetUp failed for volume "file" : hostPath type check failed: `+dir+" is not a file")
	if p := s.get("wrong"); p.Status.Phase != corev1.PodPending || waiting(p, "main") != "ContainerCreating" {
		s.Errorf("the pod is %s, waiting as %s", p.Status.Phase, waiting(p, "main"))
	}
}

func configMapAndSecret(s *testNamespace) {
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, shape: round}
binaryData: {raw: AAEC}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: s3cret, user: me}
`)
	got := s.each(s.spec("reads", `
  securityContext: {runAsUser: 1000}
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: some, configMap: {name: settings, items: [{key: color, path: deep/er/colour, mode: 0440}]}}
  - {name: hidden, secret: {secretName: hidden, defaultMode: 0444}}
  - {name: maybe, configMap: {name: none, optional: true}}
  containers:
  - name: main
    command: [sh, -c, "echo color=$(cat /settings/color); echo keys=$(ls /settings | tr '\\n' ' '); echo raw=$(od -An -tx1 /settings/raw); echo mode=$(stat -Lc %a /settings/color); echo deep=$(stat -Lc %a /some/deep/er/colour); echo some=$(ls /some); echo password=$(cat /hidden/password); echo secret=$(stat -Lc %a /hidden/user); echo maybe=$(ls /maybe | wc -l); echo link=$(readlink /settings/color); touch /settings/x 2>/dev/null && echo written=yes; echo kind=$(stat -fc %T /hidden)"]
    volumeMounts: [{name: settings, mountPath: /settings}, {name: some, mountPath: /some}, {name: hidden, mountPath: /hidden}, {name: maybe, mountPath: /maybe}]
`))["main"]
	s.expect(got, map[string]string{"color": "blue", "keys": "color raw shape", "raw": " 00 01 02", "mode": "644", "deep": "440", "some": "deep", "password": "s3cret", "secret": "444",
		"maybe": "0", "link": "..data/color", "written": "", "kind": "tmpfs"})
}

func volumeMissing(s *testNamespace) {
	s.create(s.spec("waits", `
  volumes: [{name: later, secret: {secretName: later}}]
  containers: [{name: main, command: [cat, /later/key], volumeMounts: [{name: later, mountPath: /later}]}]
`))
	s.awaitEvent("waits", `FailedMount: MountVolume.SetUp failed for volume "later" : secret "later" not found`)
	s.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: later}\nstringData: {key: here}\n")
	if p := s.awaitEnd("waits"); p.Status.Phase != corev1.PodSucceeded || s.logs("waits", &corev1.PodLogOptions{}) != "here" {
		s.Errorf("the pod is %s", p.Status.Phase)
	}
}

// A projected volume has all its sources in it; the token in it is this pod's, for who it was asked for.
func projected(s *testNamespace) {
	s.apply(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: hidden}
stringData: {password: s3cret}
`)
	s.create(s.spec("all", `
  volumes:
  - name: all
    projected:
      defaultMode: 0400
      sources:
      - configMap: {name: settings, items: [{key: color, path: my/color}]}
      - secret: {name: hidden}
      - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
      - serviceAccountToken: {path: token, audience: vault, expirationSeconds: 600}
  containers:
  - name: main
    command: [sh, -c, "trap 'exit 0' TERM; sleep 1000 & wait"]
    volumeMounts: [{name: all, mountPath: /all}]
`))
	s.running("all")
	got := facts(s.exec("all", "sh", "-c", `cd /all; echo color=$(cat my/color); echo password=$(cat password); echo name=$(cat name); echo token=$(cat token); echo mode=$(stat -Lc %a token); echo own=$(cat /var/run/secrets/kubernetes.io/serviceaccount/token); echo ca=$(head -1 /var/run/secrets/kubernetes.io/serviceaccount/ca.crt); echo namespace=$(cat /var/run/secrets/kubernetes.io/serviceaccount/namespace)`))
	s.expect(got, map[string]string{"color": "blue", "password": "s3cret", "name": "all", "mode": "400", "ca": "-----BEGIN CERTIFICATE-----", "namespace": s.name})
	account := "system:serviceaccount:" + s.name + ":default"
	review, err := s.api.AuthenticationV1().TokenReviews().Create(s.Context(), &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: got["token"], Audiences: []string{"vault"}}}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	if u := review.Status.User; !review.Status.Authenticated || u.Username != account || !slices.Equal(u.Extra["authentication.kubernetes.io/pod-name"], []string{"all"}) {
		s.Errorf("the token for the vault is reviewed as %+v", review.Status)
	}
	// The token that every pod has opens the API.
	config := rest.AnonymousClientConfig(s.config)
	config.BearerToken = got["own"]
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		s.Fatal(err)
	}
	me, err := client.AuthenticationV1().SelfSubjectReviews().Create(s.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || me.Status.UserInfo.Username != account {
		s.Errorf("with its own token the pod is %v, %v", me, err)
	}
	config.BearerToken = got["token"]
	if client, err = kubernetes.NewForConfig(config); err != nil {
		s.Fatal(err)
	}
	if _, err := client.AuthenticationV1().SelfSubjectReviews().Create(s.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}); err == nil {
		s.Error("the token for the vault opens the API")
	}
}

func downwardAPI(s *testNamespace) {
	p := s.spec("knows", `
  volumes:
  - name: me
    downwardAPI:
      items:
      - {path: labels, fieldRef: {fieldPath: metadata.labels}}
      - {path: annotations, fieldRef: {fieldPath: metadata.annotations}}
      - {path: one/label, mode: 0400, fieldRef: {fieldPath: "metadata.labels['tier']"}}
      - {path: cpu, resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}}
      - {path: memory, resourceFieldRef: {containerName: main, resource: requests.memory}}
  containers:
  - name: main
    resources: {requests: {memory: 16Mi}, limits: {cpu: 250m, memory: 32Mi}}
    command: [sh, -c, "echo labels=$(cat /me/labels | tr '\\n' ' '); echo annotations=$(grep note /me/annotations); echo label=$(cat /me/one/label); echo mode=$(stat -Lc %a /me/one/label); echo cpu=$(cat /me/cpu); echo memory=$(cat /me/memory)"]
    volumeMounts: [{name: me, mountPath: /me}]
`)
	p.Labels, p.Annotations = map[string]string{"tier": "front", "app": "x"}, map[string]string{"note": "two\nlines"}
	s.expect(s.each(p)["main"], map[string]string{"labels": `app="x" tier="front"`, "annotations": `note="two\nlines"`, "label": "front", "mode": "400", "cpu": "250", "memory": "16777216"})
}

func subPath(s *testNamespace) {
	s.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: blue, shape: round}\n")
	dir := s.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("one file\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	got := s.each(s.spec("parts", strings.ReplaceAll(`
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: dir, hostPath: {path: DIR}}
  containers:
  - name: main
    env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
    command: [sh, -c, "echo color=$(cat /etc/color); echo file=$(cat /file); echo made > /deep/new; echo who > /mine/new; echo other=$(ls /settings 2>/dev/null | wc -l)"]
    volumeMounts:
    - {name: settings, mountPath: /etc/color, subPath: color}
    - {name: dir, mountPath: /file, subPath: file}
    - {name: dir, mountPath: /deep, subPath: deep/er}
    - {name: dir, mountPath: /mine, subPathExpr: of/$(WHO)}
`, "DIR", dir)))["main"]
	s.expect(got, map[string]string{"color": "blue", "file": "one file", "other": "0"})
	for f, want := range map[string]string{"deep/er/new": "made\n", "of/parts/new": "who\n"} {
		if got := s.read(filepath.Join(dir, f)); got != want {
			s.Errorf("%s has %q", f, got)
		}
	}
	s.delete("parts") // and its mounts with it, which the whole test looks for when it ends
}

// A path in a volume that a link leads out of it is refused.
func subPathOut(s *testNamespace) {
	dir, secret := s.TempDir(), s.TempDir()
	if err := os.WriteFile(filepath.Join(secret, "file"), []byte("not for pods"), 0o644); err != nil {
		s.Fatal(err)
	}
	for link, to := range map[string]string{"absolute": secret, "relative": "../" + filepath.Base(secret)} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			s.Fatal(err)
		}
	}
	for _, path := range []string{"absolute", "relative", "absolute/file"} {
		name := strings.ReplaceAll(path, "/", "-")
		s.create(s.spec(name, fmt.Sprintf(`
  volumes: [{name: dir, hostPath: {path: %s}}]
  containers: [{name: main, command: [ls, /stolen], volumeMounts: [{name: dir, mountPath: /stolen, subPath: %s}]}]
`, dir, path)))
		p := s.wait(name, "to be refused", func(p *corev1.Pod) bool { return waiting(p, "main") == "CreateContainerConfigError" })
		if m := container(p, "main").State.Waiting.Message; m != `failed to prepare subPath for volumeMount "dir" of container "main"` {
			s.Errorf("message: %s", m)
		}
	}
}

// A reader of a volume sees either all of the old version or all of the new one, and files never vanish. What was mounted by subPath stays.
func atomicUpdates(s *testNamespace) {
	set := func(version int) {
		s.apply(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {a: \"%d\", b: \"%d\"}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: hidden}\nstringData: {key: \"%d\"}\n", version, version, version))
	}
	set(1)
	p := s.spec("follows", `
  volumes:
  - {name: settings, configMap: {name: settings}}
  - {name: hidden, secret: {secretName: hidden}}
  - {name: me, downwardAPI: {items: [{path: label, fieldRef: {fieldPath: "metadata.labels['tier']"}}]}}
  containers:
  - name: main
    command: [sh, -c, "trap 'exit 0' TERM; while true; do d=$(readlink /settings/..data); a=$(cat /settings/$d/a); b=$(cat /settings/$d/b); [ -e /settings/$d ] && [ $a != $b ] && echo torn $a $b; cat /settings/a > /dev/null || echo vanished; sleep 0.05; done"]
    volumeMounts: [{name: settings, mountPath: /settings}, {name: hidden, mountPath: /hidden}, {name: me, mountPath: /me}, {name: settings, mountPath: /fixed, subPath: a}]
`)
	p.Labels = map[string]string{"tier": "front"}
	s.create(p)
	s.running("follows")
	look := func() map[string]string {
		return facts(s.exec("follows", "sh", "-c", "echo a=$(cat /settings/a); echo b=$(cat /settings/b); echo key=$(cat /hidden/key); echo label=$(cat /me/label); echo fixed=$(cat /fixed)"))
	}
	s.expect(look(), map[string]string{"a": "1", "b": "1", "key": "1", "label": "front", "fixed": "1"})
	set(2)
	if _, err := s.api.CoreV1().Pods(s.name).Patch(s.Context(), "follows", types.MergePatchType, []byte(`{"metadata":{"labels":{"tier":"back"}}}`), metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	var got map[string]string
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
		if got = look(); got["a"] == "2" && got["key"] == "2" && got["label"] == "back" || time.Now().After(deadline) {
			break
		}
	}
	s.expect(got, map[string]string{"a": "2", "b": "2", "key": "2", "label": "back", "fixed": "1"})
	if out := s.logs("follows", &corev1.PodLogOptions{}); out != "" {
		s.Errorf("the reader says:\n%s", out)
	}
}
