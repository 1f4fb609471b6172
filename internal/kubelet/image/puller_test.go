package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/kubelettest"
)

func newPuller(t *testing.T) (*Puller, *kubelettest.Runtime, *record.FakeRecorder) {
	t.Helper()
	r, events := kubelettest.NewRuntime(), record.NewFakeRecorder(100)
	p, err := New(Options{Runtime: r, Recorder: events, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return p, r, events
}

// An image that was pulled with a secret is only for those who have it; one that was put there, or that anybody can pull, is for all.
func TestWhoMayUse(t *testing.T) {
	p, r, _ := newPuller(t)
	r.AddImage(kubelettest.Image{Name: "private.example/app:1", Secret: "right"})
	r.AddImage(kubelettest.Image{Name: "preloaded:1", Present: true})
	secret := func(name, password string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
			`{"auths": {"private.example": {"username": "u", "password": "` + password + `"}}}`)}}
	}
	const image = "private.example/app:1"
	ensure := func(p *Puller, image string, policy corev1.PullPolicy, uid types.UID, secrets ...*corev1.Secret) string {
		q := request(image, policy, secrets...)
		q.Pod.UID = uid
		_, err := p.Ensure(t.Context(), q)
		return reason(err)
	}
	none := fmt.Sprint(error(nil))
	if got := ensure(p, image, corev1.PullIfNotPresent, "first", secret("s", "right")); got != none {
		t.Fatal(got)
	}
	for range 2 { // as it is now, and after a restart
		pulls := len(r.Calls())
		if got := ensure(p, image, corev1.PullIfNotPresent, "same", secret("s", "right")); got != none || len(r.Calls()) != pulls {
			t.Errorf("with the same secret: %s", got)
		}
		if got := ensure(p, image, corev1.PullNever, "copy", secret("copy", "right")); got != none {
			t.Errorf("with a copy of the secret: %s", got)
		}
		if got := ensure(p, image, corev1.PullIfNotPresent, "none"); got != ErrImagePull {
			t.Errorf("without a secret: %s", got)
		}
		if got := ensure(p, image, corev1.PullNever, "never"); got != ErrImageNeverPull {
			t.Errorf("without a secret, never pulling: %s", got)
		}
		if got := ensure(p, "preloaded:1", corev1.PullNever, "none"); got != none {
			t.Errorf("an image that was put there: %s", got)
		}
		p.Forget("none")
		again, err := New(p.options)
		if err != nil {
			t.Fatal(err)
		}
		p = again
	}
	if err := p.Keep(map[string]bool{}); err != nil || !p.records.allows("sha256:"+image, nil) {
		t.Errorf("an image that is gone is still remembered: %v", err)
	}
}

func request(image string, policy corev1.PullPolicy, secrets ...*corev1.Secret) Request {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	return Request{Pod: pod, About: pod, Image: image, Policy: policy, Secrets: secrets}
}

func reason(err error) string {
	var e *Error
	if !errors.As(err, &e) {
		return fmt.Sprint(err)
	}
	return e.Reason
}

func TestEnsure(t *testing.T) {
	p, r, events := newPuller(t)
	uid := int64(7)
	r.AddImage(kubelettest.Image{Name: "there:1", Present: true, UID: &uid})
	r.AddImage(kubelettest.Image{Name: "away:latest", Size: 42})
	for _, test := range []struct {
		image  string
		policy corev1.PullPolicy
		reason string // empty if it is to be there
		event  string
	}{
		{"there:1", corev1.PullIfNotPresent, "", `Normal Pulled Container image "there:1" already present on machine and can be accessed by the pod`},
		{"there:1", corev1.PullNever, "", `Normal Pulled Container image "there:1" already present`},
		{"away", corev1.PullNever, ErrImageNeverPull, `Warning ErrImageNeverPull Container image "away" is not present with pull policy of Never`},
		{"away", corev1.PullIfNotPresent, "", `Normal Pulling Pulling image "away"`},
		{"there:1", corev1.PullAlways, "", `Normal Pulling Pulling image "there:1"`},
		{"Not:A:Name", corev1.PullAlways, ErrInvalidImageName, `Warning InspectFailed Failed to apply default image tag "Not:A:Name": couldn't parse image name "Not:A:Name": `},
		{"nosuch", corev1.PullAlways, ErrImagePull, `Normal Pulling Pulling image "nosuch"`},
		{"nosuch", corev1.PullAlways, ErrImagePullBackOff, `Normal BackOff Back-off pulling image "nosuch"`},
	} {
		for len(events.Events) > 0 {
			<-events.Events
		}
		got, err := p.Ensure(t.Context(), request(test.image, test.policy))
		if test.reason == "" && (err != nil || got.Ref == "") || test.reason != "" && reason(err) != test.reason {
			t.Errorf("%s %s: %+v, %v; want %q", test.image, test.policy, got, err, test.reason)
		}
		if e := <-events.Events; !strings.HasPrefix(e, test.event) {
			t.Errorf("%s %s: event %q, want %q", test.image, test.policy, e, test.event)
		}
	}
	if retry := time.Until(p.Retry("u", "nosuch")); retry > minBackOff || retry < minBackOff-time.Second {
		t.Errorf("the image is tried again in %v", retry)
	}
	p.Forget("u")
	if !p.Retry("u", "nosuch").IsZero() {
		t.Error("what failed was not forgotten")
	}
}

// All secrets that fit are tried, that of the longest path first.
func TestSecrets(t *testing.T) {
	secret := func(kind corev1.SecretType, key, content string) *corev1.Secret {
		return &corev1.Secret{Type: kind, Data: map[string][]byte{key: []byte(content)}}
	}
	old := secret(corev1.SecretTypeDockercfg, corev1.DockerConfigKey, `{"https://registry.example/v2/": {"username": "a", "password": "host"}}`)
	modern := secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey,
		`{"auths": {"registry.example/team": {"auth": "YjpwYXRo"}, "*.example": {"username": "c", "password": "glob"}, "other.example:5000": {"username": "d", "password": "port"}, "https://index.docker.io/v1/": {"username": "e", "password": "hub"}}}`)
	k, err := newKeyring([]*corev1.Secret{old, modern, {Type: corev1.SecretTypeOpaque}})
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string]string{
		"registry.example/team/app": "path host glob", "registry.example/app": "host glob", "sub.example/app": "glob", "a.b.example/app": "", "other.example:5000/app": "port",
		"docker.io/library/nginx": "hub", "elsewhere.test/app": "",
	} {
		var got []string
		for _, c := range k.lookup(repository) {
			got = append(got, c.Password)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", repository, got, want)
		}
	}
	for _, bad := range []string{`{"auths": `, `{"auths": {"x": {"auth": "%%%"}}}`, `{"auths": {"x": {"auth": "bm9jb2xvbg=="}}}`} {
		if _, err := newKeyring([]*corev1.Secret{secret(corev1.SecretTypeDockerConfigJson, corev1.DockerConfigJsonKey, bad)}); err == nil {
			t.Errorf("%s makes sense", bad)
		}
	}
}

// Many who want the same image wait for one pull; it ends when nobody waits any more.
func TestJoin(t *testing.T) {
	p, r, _ := newPuller(t)
	p.options.Recorder = &record.FakeRecorder{} // says nothing
	r.AddImage(kubelettest.Image{Name: "big:latest", Size: 1})
	r.Delay("PullImage", 100*time.Millisecond)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.Ensure(t.Context(), request("big", corev1.PullAlways)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(r.Calls()); n > 2 {
		t.Errorf("%d pulls", n)
	}
	r.Delay("PullImage", time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := p.Ensure(ctx, request("big", corev1.PullAlways)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a pull that nobody waits for: %v", err)
	}
	if !p.Retry("u", "big").IsZero() {
		t.Error("a pull that was broken off counts as failed")
	}
}

// A runtime that does not answer says nothing about an image.
func TestUnavailable(t *testing.T) {
	p, r, _ := newPuller(t)
	r.SetDown(true)
	for _, policy := range []corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent} {
		if _, err := p.Ensure(t.Context(), request("x", policy)); status.Code(err) != codes.Unavailable {
			t.Errorf("%s: %v", policy, err)
		}
	}
	if !p.Retry("u", "x").IsZero() {
		t.Error("it counts as failed")
	}
}

// An inspection that was broken off, as when a volume of the pod cannot be mounted, says nothing about the image: it leaves no Event.
func TestInspectionBrokenOff(t *testing.T) {
	p, r, events := newPuller(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Fail("ImageStatus", status.Error(codes.Canceled, "context canceled"))
	if _, err := p.Ensure(ctx, request("x", corev1.PullIfNotPresent)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	select {
	case event := <-events.Events:
		t.Errorf("an Event: %s", event)
	default:
	}
}

func FuzzKeyring(f *testing.F) {
	f.Add(`{"auths": {"registry.example/team": {"auth": "YjpwYXRo"}}}`, "registry.example/team/app")
	f.Fuzz(func(t *testing.T, config, repository string) {
		k, err := newKeyring([]*corev1.Secret{{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}}})
		if err == nil {
			k.lookup(repository)
		}
	})
}

// asked is a runtime that records the credentials that it is given.
type asked struct {
	*kubelettest.Runtime
	auths []*runtimeapi.AuthConfig
}

func (a *asked) PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, of *runtimeapi.PodSandboxConfig) (string, error) {
	a.auths = append(a.auths, auth)
	return a.Runtime.PullImage(ctx, image, auth, of)
}

// Credentials come with the registry that they are for, by the name that the runtime has for it, so that no mirror gets them.
func TestServerAddress(t *testing.T) {
	for image, want := range map[string]string{
		"private/app:1": "https://registry-1.docker.io", "docker.io/private/app:1": "https://registry-1.docker.io", "index.docker.io/private/app:1": "https://registry-1.docker.io",
		"registry.example/app:1": "https://registry.example", "registry.example:5000/team/app:1": "https://registry.example:5000",
		"localhost/app:1": "https://localhost", "[2001:db8::1]:5000/app:1": "https://[2001:db8::1]:5000",
	} {
		r := &asked{Runtime: kubelettest.NewRuntime()}
		r.AddImage(kubelettest.Image{Name: image})
		p, err := New(Options{Runtime: r, Recorder: record.NewFakeRecorder(100)})
		if err != nil {
			t.Fatal(err)
		}
		repository, _, err := parse(image)
		if err != nil {
			t.Fatal(err)
		}
		host, _, _ := strings.Cut(repository, "/")
		secret := &corev1.Secret{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(
			`{"auths": {"` + host + `": {"username": "u", "password": "p"}}}`)}}
		if _, err := p.Ensure(t.Context(), request(image, corev1.PullAlways, secret)); err != nil {
			t.Fatalf("%s: %v", image, err)
		}
		if len(r.auths) != 1 || r.auths[0].GetServerAddress() != want || r.auths[0].GetPassword() != "p" {
			t.Errorf("%s: credentials are %v, want %s", image, r.auths, want)
		}
	}
}
