package serviceaccount_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/serviceaccount"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

var accounts = corev1.Resource("serviceaccounts")

func store(t testing.TB) *objectstest.Store {
	s := objectstest.New()
	for _, account := range []string{
		`{metadata: {namespace: ns, name: default}}`,
		`{metadata: {namespace: ns, name: shy}, automountServiceAccountToken: false}`,
		`{metadata: {namespace: ns, name: puller}, imagePullSecrets: [{name: one}, {name: two}]}`,
		`{metadata: {namespace: ns, name: strict, annotations: {kubernetes.io/enforce-mountable-secrets: "true"}}, secrets: [{name: known}], imagePullSecrets: [{name: pull}]}`,
		`{metadata: {namespace: ns, name: lax, annotations: {kubernetes.io/enforce-mountable-secrets: "no"}}}`,
	} {
		s.Put(accounts, admissiontest.Parse(t, &corev1.ServiceAccount{}, account))
	}
	return s
}

func pod(t testing.TB, spec string) *corev1.Pod {
	p := &corev1.Pod{Spec: *admissiontest.Parse(t, &corev1.PodSpec{}, spec)}
	p.Namespace, p.Name = "ns", "p"
	return p
}

const (
	tokenMount  = `{name: kube-api-access-NAME, readOnly: true, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}`
	tokenVolume = `{name: kube-api-access-NAME, projected: {defaultMode: 420, sources: [{serviceAccountToken: {expirationSeconds: 3607, path: token}},
	  {configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}}, {downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}}]}}`
)

func TestPodsGetAnAccount(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"the default account with its token", `{containers: [{name: c}], initContainers: [{name: i}]}`,
			`{serviceAccountName: default, serviceAccount: default, containers: [{name: c, volumeMounts: [` + tokenMount + `]}],
			  initContainers: [{name: i, volumeMounts: [` + tokenMount + `]}], volumes: [` + tokenVolume + `]}`},
		{"a named account", `{serviceAccountName: lax, containers: [{name: c}]}`,
			`{serviceAccountName: lax, containers: [{name: c, volumeMounts: [` + tokenMount + `]}], volumes: [` + tokenVolume + `]}`},
		{"an account that gives no token", `{serviceAccountName: shy, containers: [{name: c}]}`, `{serviceAccountName: shy, containers: [{name: c}]}`},
		{"a pod that wants it all the same", `{serviceAccountName: shy, automountServiceAccountToken: true, containers: [{name: c}]}`,
			`{serviceAccountName: shy, automountServiceAccountToken: true, containers: [{name: c, volumeMounts: [` + tokenMount + `]}], volumes: [` + tokenVolume + `]}`},
		{"a pod that wants none", `{automountServiceAccountToken: false, containers: [{name: c}]}`,
			`{serviceAccountName: default, serviceAccount: default, automountServiceAccountToken: false, containers: [{name: c}]}`},
		{"a container with something in its place", `{containers: [{name: c, volumeMounts: [{name: v, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]}`,
			`{serviceAccountName: default, serviceAccount: default, containers: [{name: c, volumeMounts: [{name: v, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]}`},
		{"a pod that brings the volume", `{containers: [{name: c}], volumes: [{name: kube-api-access-NAME, emptyDir: {}}]}`,
			`{serviceAccountName: default, serviceAccount: default, containers: [{name: c, volumeMounts: [` + tokenMount + `]}], volumes: [{name: kube-api-access-NAME, emptyDir: {}}]}`},
		{"pull secrets of the account", `{serviceAccountName: puller, automountServiceAccountToken: false, containers: []}`,
			`{serviceAccountName: puller, automountServiceAccountToken: false, imagePullSecrets: [{name: one}, {name: two}], containers: []}`},
		{"pull secrets of the pod", `{serviceAccountName: puller, automountServiceAccountToken: false, imagePullSecrets: [{name: own}], containers: []}`,
			`{serviceAccountName: puller, automountServiceAccountToken: false, imagePullSecrets: [{name: own}], containers: []}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pod(t, c.spec)
			admissiontest.Expect(t, admissiontest.Through(t, serviceaccount.New(store(t)), admissiontest.Create(p)), "")
			name := "NAME"
			for _, v := range p.Spec.Volumes {
				if generated, ok := strings.CutPrefix(v.Name, "kube-api-access-"); ok {
					name = generated
				}
			}
			if name != "NAME" && !regexp.MustCompile(`^[a-z0-9]{5}$`).MatchString(name) {
				t.Errorf("the volume is called %s", name)
			}
			admissiontest.Same(t, p.Spec, admissiontest.Parse(t, &corev1.PodSpec{}, strings.ReplaceAll(c.want, "NAME", name)))
		})
	}
}

func TestRefusals(t *testing.T) {
	const forbidden, unlisted = `pods "p" is forbidden: `, ` is not allowed because service account strict does not reference that secret`
	for _, c := range []struct{ name, spec, want string }{
		{"an account that is not there", `{serviceAccountName: none}`, forbidden + `error looking up service account ns/none: serviceaccount "none" not found`},
		{"a volume", `{serviceAccountName: strict, volumes: [{name: v, secret: {secretName: other}}]}`, forbidden + `volume with secret.secretName="other"` + unlisted},
		{"an environment variable", `{serviceAccountName: strict, containers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]}`,
			forbidden + `container c with envVar E referencing secret.secretName="other"` + unlisted},
		{"an environment", `{serviceAccountName: strict, initContainers: [{name: c, envFrom: [{secretRef: {name: other}}]}]}`,
			forbidden + `init container c with envFrom referencing secret.secretName="other"` + unlisted},
		{"a pull secret", `{serviceAccountName: strict, imagePullSecrets: [{name: pull}, {name: other}]}`,
			forbidden + `imagePullSecrets[1].name="other" is not allowed because service account strict does not reference that imagePullSecret`},
		{"what is listed", `{serviceAccountName: strict, volumes: [{name: v, secret: {secretName: known}}], imagePullSecrets: [{name: pull}]}`, ""},
		{"an account that does not insist", `{serviceAccountName: lax, volumes: [{name: v, secret: {secretName: other}}], imagePullSecrets: [{name: x}]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			admissiontest.Expect(t, admissiontest.Through(t, serviceaccount.New(store(t)), admissiontest.Create(pod(t, c.spec))), c.want)
		})
	}
}

func TestMirrorPodsStayAsTheyAre(t *testing.T) {
	for _, c := range []struct{ name, spec, want string }{
		{"a plain one", `{containers: [{name: c}]}`, ""},
		{"an account", `{serviceAccountName: default}`, `pods "p" is forbidden: a mirror pod may not reference service accounts`},
		{"a secret", `{containers: [{name: c, envFrom: [{secretRef: {name: s}}]}]}`, `pods "p" is forbidden: a mirror pod may not reference secrets`},
		{"a token", `{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: p}}]}}]}`,
			`pods "p" is forbidden: a mirror pod may not use ServiceAccountToken volume projections`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pod(t, c.spec)
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
			before := p.DeepCopy()
			admissiontest.Expect(t, admissiontest.Through(t, serviceaccount.New(store(t)), admissiontest.Create(p)), c.want)
			admissiontest.Same(t, p, before)
		})
	}
}

func TestEphemeralContainers(t *testing.T) {
	update := func(spec string) error {
		p := pod(t, spec)
		return admissiontest.Through(t, serviceaccount.New(store(t)), admissiontest.Subresource(admissiontest.Update(p, p), p, "ephemeralcontainers"))
	}
	admissiontest.Expect(t, update(`{serviceAccountName: strict, volumes: [{name: v, secret: {secretName: other}}]}`), "")
	admissiontest.Expect(t, update(`{serviceAccountName: strict, ephemeralContainers: [{name: e, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]}`),
		`ephemeral container e with envVar E referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`)
	admissiontest.Expect(t, update(`{}`), `pods "p" is forbidden: no service account specified for pod ns/p`)
	admissiontest.Expect(t, update(`{serviceAccountName: none}`), `pods "p" is forbidden: error looking up service account ns/none: serviceaccount "none" not found`)
}

// lagging is a store whose cache is empty and whose objects appear after some reads.
type lagging struct {
	*objectstest.Store
	reads int
	from  int // the look that finds them
}

func (*lagging) Get(schema.GroupResource, string, string) catalog.Object { return nil }

func (l *lagging) Fresh(ctx context.Context, r schema.GroupResource, namespace, name string) (catalog.Object, error) {
	if l.reads++; l.reads < l.from {
		return objectstest.New().Fresh(ctx, r, namespace, name)
	}
	return l.Store.Fresh(ctx, r, namespace, name)
}

func TestDefaultAccountIsAwaited(t *testing.T) {
	for _, c := range []struct {
		name, account string
		from, looks   int
		want          string
	}{
		{"it is newer than the cache", "default", 1, 2, ""}, // once for each phase
		{"it is created late", "default", 5, 6, ""},
		{"it is never created", "default", 99, 10, `pods "p" is forbidden: error looking up service account ns/default: serviceaccount "default" not found`},
		{"others are not waited for", "lax", 2, 1, `pods "p" is forbidden: error looking up service account ns/lax: serviceaccount "lax" not found`},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &lagging{Store: store(t), from: c.from}
				p := pod(t, `{}`)
				p.Spec.ServiceAccountName = c.account
				start := time.Now()
				admissiontest.Expect(t, admissiontest.Through(t, serviceaccount.New(s), admissiontest.Create(p)), c.want)
				if took := time.Since(start); s.reads != c.looks || took > 2*time.Second {
					t.Errorf("%d reads in %v", s.reads, took)
				}
			})
		})
	}
}

func TestTokensAreNotShared(t *testing.T) {
	one, two := pod(t, `{containers: [{name: c}]}`), pod(t, `{containers: [{name: c}]}`)
	plugin := serviceaccount.New(store(t))
	for _, p := range []*corev1.Pod{one, two} {
		admissiontest.Expect(t, admissiontest.Through(t, plugin, admissiontest.Create(p)), "")
	}
	one.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds = ptr.To[int64](1)
	*one.Spec.Volumes[0].Projected.DefaultMode = 1
	if *two.Spec.Volumes[0].Projected.DefaultMode == 1 || one.Spec.Volumes[0].Name == two.Spec.Volumes[0].Name {
		t.Error("two pods have the same volume")
	}
}
