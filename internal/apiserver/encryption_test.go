package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver"
	"skiff/internal/apiserver/encryption/kmstest"
	"skiff/internal/store"
	"skiff/internal/store/etcd"
	"skiff/internal/store/memory"
)

// Providers of the tests, by what their values begin with.
const (
	cbcA    = `{aescbc: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}}`
	cbcX    = `{aescbc: {keys: [{name: a, secret: eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=}]}}` // a wrong key of the same name
	gcmB    = `{aesgcm: {keys: [{name: b, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}]}}`
	boxC    = `{secretbox: {keys: [{name: c, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}]}}`
	inClear = `{identity: {}}`
)

// encryptionFile is a configuration file of a test.
type encryptionFile struct {
	t    testing.TB
	path string
}

// encrypting returns a configuration that encrypts resources with providers.
func encrypting(t testing.TB, resources string, providers ...string) encryptionFile {
	f := encryptionFile{t, filepath.Join(t.TempDir(), "encryption.yaml")}
	f.set(resources, providers...)
	return f
}

func (f encryptionFile) set(resources string, providers ...string) {
	f.t.Helper()
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [" + resources + "]\n  providers: [" + strings.Join(providers, ", ") + "]\n"
	if err := os.WriteFile(f.path+".part", []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.path+".part", f.path); err != nil {
		f.t.Fatal(err)
	}
}

func (f encryptionFile) use(o *apiserver.Options) { o.EncryptionFile = f.path }

// on has servers share a store, which the test closes.
func on(kept store.Store) func(*apiserver.Options) {
	return func(o *apiserver.Options) { o.Store = unclosedStore{kept} }
}

func sharedStore(t testing.TB) store.Store {
	kept := memory.New(memory.Options{})
	t.Cleanup(func() { kept.Close() })
	return kept
}

const planted = "a-value-that-was-planted"

func secret(name, value string) object {
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name}, "stringData": object{"key": value}}
}

// storedBytes returns the bytes under a key of the store.
func (s *server) storedBytes(key string) string {
	s.t.Helper()
	kv, _, err := s.store.Get(s.t.Context(), key)
	if err != nil {
		s.t.Fatalf("%s: %v", key, err)
	}
	return string(kv.Value)
}

func (s *server) secretValue(name string) string {
	s.t.Helper()
	return string(into[corev1.Secret](s.send("GET", inNamespace("secrets", name), nil).ok()).Data["key"])
}

// startFailure returns the error with which a server does not start.
func startFailure(t testing.TB, change ...func(*apiserver.Options)) error {
	t.Helper()
	opts := apiserver.Options{Log: slog.New(slog.DiscardHandler), DisableAdmission: plugins}
	for _, c := range change {
		c(&opts)
	}
	api, err := apiserver.New(opts)
	if err != nil {
		return err
	}
	defer api.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return api.WaitReady(ctx)
}

// TestEncryptedInEtcd greps etcd's files for what Secrets hold: the database and its log, while the server runs and after it has ended.
func TestEncryptedInEtcd(t *testing.T) {
	plugin := kmstest.Start(t)
	for name, provider := range map[string]string{"aescbc": cbcA, "aesgcm": gcmB, "secretbox": boxC,
		"kms": `{kms: {apiVersion: v2, name: plugin, endpoint: "` + plugin.Endpoint + `"}}`, "clear": inClear} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			database, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { database.Close() })
			s := start(t, on(database), encrypting(t, "secrets", provider).use)
			s.send("POST", inNamespace("secrets"), secret("a", planted)).ok()
			s.send("POST", inNamespace("configmaps"), configMap("a", "key", "a-clear-value")).ok()
			s.send("PATCH", inNamespace("secrets", "a"), object{"stringData": object{"other": planted}}, "Content-Type", "application/merge-patch+json").ok()
			if got := s.secretValue("a"); got != planted {
				t.Errorf("read %q", got)
			}
			if got := s.storedBytes("/registry/secrets/default/a"); name != "clear" && !strings.HasPrefix(got, "k8s:enc:"+name+":v") {
				t.Errorf("stored %q", got)
			}
			s.api.Close()
			database.Close()
			if got := filesWith(t, dir, "a-clear-value"); len(got) == 0 {
				t.Error("the value of a ConfigMap is not in the files: the search finds nothing")
			}
			if got := filesWith(t, dir, planted); len(got) > 0 != (name == "clear") {
				t.Errorf("the value of the Secret is in %q", got)
			}
		})
	}
}

// filesWith returns the files below a directory that contain a text.
func filesWith(t testing.TB, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestEncryptedVerbs runs the verbs on encrypted resources: a built-in one, one whose objects are not cached, and a custom one.
func TestEncryptedVerbs(t *testing.T) {
	kept := sharedStore(t)
	config := encrypting(t, "'*.*'", gcmB)
	s := start(t, on(kept), config.use)
	s.define(cronTabs)
	event := object{"apiVersion": "v1", "kind": "Event", "metadata": object{"name": "a"}, "involvedObject": object{"namespace": "default", "kind": "Pod", "name": "x"}, "reason": planted}
	cronTab := object{"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": object{"name": "a"}, "spec": object{"cronSpec": planted}}
	for _, c := range []struct {
		path, key, selector string
		obj                 object
	}{
		{inNamespace("secrets"), "/registry/secrets/default/", "type=Opaque", secret("a", planted)},
		{inNamespace("events"), "/registry/events/default/", "reason=" + planted, event},
		{crontabs, "/registry/stable.example.com/crontabs/default/", "spec.cronSpec=" + planted, cronTab},
	} {
		from := into[metav1.PartialObjectMetadata](s.send("POST", c.path, c.obj).ok()).ResourceVersion
		if got := s.storedBytes(c.key + "a"); !strings.HasPrefix(got, "k8s:enc:aesgcm:v1:b:") || strings.Contains(got, planted) {
			t.Errorf("%s: stored %q", c.path, got)
		}
		s.send("PATCH", c.path+"/a", object{"metadata": object{"labels": object{"x": "y"}}}, "Content-Type", "application/merge-patch+json").ok()
		c.obj["metadata"] = object{"name": "b"}
		s.send("POST", c.path, c.obj).ok()
		s.send("POST", c.path, c.obj).refused(http.StatusConflict, metav1.StatusReasonAlreadyExists)
		s.send("DELETE", c.path+"/b", nil).ok()
		for _, query := range []string{"?fieldSelector=" + c.selector, "?labelSelector=x=y", "?resourceVersionMatch=Exact&resourceVersion=" + from, "?limit=1"} {
			list := into[metav1.PartialObjectMetadataList](s.send("GET", c.path+query, nil).ok())
			if len(list.Items) != 1 || list.Items[0].Name != "a" {
				t.Errorf("%s%s lists %+v", c.path, query, list.Items)
			}
		}
		var events []string
		for _, line := range strings.Split(strings.TrimSpace(string(s.send("GET", c.path+"?watch=1&timeoutSeconds=1&resourceVersion="+from, nil).ok().Body)), "\n") {
			var e struct {
				Type   string
				Object metav1.PartialObjectMetadata
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err, line)
			}
			if e.Type != "BOOKMARK" {
				events = append(events, e.Type+" "+e.Object.Name)
			}
		}
		if want := []string{"MODIFIED a", "ADDED b", "DELETED b"}; !slices.Equal(events, want) {
			t.Errorf("%s: a watch says %q, want %q", c.path, events, want)
		}
	}
	s.api.Close()
	s = start(t, on(kept), config.use)
	if got := s.secretValue("a"); got != planted {
		t.Errorf("after a restart: %q", got)
	}
	s.send("GET", inNamespace("events", "a"), nil).ok()
	s.eventually("the custom object is served", func() bool { return s.send("GET", crontabs+"/a", nil).Code == http.StatusOK })
}

// TestStaleIsRewritten writes an object as it is: with another key it is stored again.
func TestStaleIsRewritten(t *testing.T) {
	kept := sharedStore(t)
	s := start(t, on(kept), encrypting(t, "secrets", inClear).use)
	s.send("POST", inNamespace("secrets"), secret("a", planted)).ok()
	for _, c := range []struct {
		providers []string
		prefix    string
	}{
		{[]string{cbcA, inClear}, "k8s:enc:aescbc:v1:a:"},
		{[]string{gcmB, cbcA}, "k8s:enc:aesgcm:v1:b:"},
		{[]string{boxC, gcmB}, "k8s:enc:secretbox:v1:c:"},
		{[]string{inClear, boxC}, "k8s\x00"},
	} {
		s.api.Close()
		s = start(t, on(kept), encrypting(t, "secrets", c.providers...).use)
		before := s.send("GET", inNamespace("secrets", "a"), nil).ok()
		after := s.send("PUT", inNamespace("secrets", "a"), before.Body).ok()
		if after.version() == before.version() {
			t.Errorf("%s: the stale object was not stored again", c.prefix)
		}
		if got := s.storedBytes("/registry/secrets/default/a"); !strings.HasPrefix(got, c.prefix) {
			t.Errorf("stored %q, want %q", got, c.prefix)
		}
		again := s.send("PUT", inNamespace("secrets", "a"), after.Body).ok()
		if again.version() != after.version() {
			t.Errorf("%s: an update that changes nothing was stored", c.prefix)
		}
		if got := s.secretValue("a"); got != planted {
			t.Errorf("read %q", got)
		}
	}
}

// TestWrongKey starts servers that cannot decrypt what is stored.
func TestWrongKey(t *testing.T) {
	kept := sharedStore(t)
	s := start(t, on(kept), encrypting(t, "secrets, crontabs.stable.example.com", cbcA).use)
	s.send("POST", inNamespace("secrets"), secret("a", planted)).ok()
	s.define(cronTabs)
	s.send("POST", crontabs, object{"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": object{"name": "a"}, "spec": object{"cronSpec": planted}}).ok()
	s.api.Close()
	const refusal = "the server does not start, as stored objects cannot be decrypted: give it the keys that they were encrypted with by --encryption-provider-config: "
	for _, c := range []struct {
		what   string
		change func(*apiserver.Options)
		want   string
	}{
		{"no configuration", func(*apiserver.Options) {}, refusal + `1 of the secrets cannot be read: unable to transform key "/registry/secrets/default/a": identity transformer tried to read encrypted data`},
		{"another key", encrypting(t, "secrets, crontabs.stable.example.com", cbcX).use, refusal + `1 of the secrets cannot be read: unable to transform key "/registry/secrets/default/a": invalid `},
		{"no key of that name", encrypting(t, "secrets", gcmB).use, refusal + `1 of the secrets cannot be read: unable to transform key "/registry/secrets/default/a": no matching prefix found`},
		{"no key for a custom resource", encrypting(t, "secrets", cbcA).use, refusal + `1 of the crontabs.stable.example.com cannot be read: unable to transform key "/registry/stable.example.com/crontabs/default/a": identity transformer tried`},
		{"no file", func(o *apiserver.Options) { o.EncryptionFile = "/no/such/file" }, "--encryption-provider-config: error while loading file: error reading encryption provider configuration file \"/no/such/file\": "},
	} {
		if err := startFailure(t, on(kept), c.change); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
	s = start(t, on(kept), encrypting(t, "secrets, crontabs.stable.example.com", gcmB, cbcA).use)
	if got := s.secretValue("a"); got != planted {
		t.Errorf("with the right key again: %q", got)
	}
}

// TestUnreadableMeanwhile has another server write an object that this one cannot decrypt: it is not taken for deleted, and served again with the key.
func TestUnreadableMeanwhile(t *testing.T) {
	kept := sharedStore(t)
	plugin := kmstest.Start(t)
	kms := func(timeout string) string {
		return `{kms: {apiVersion: v2, name: plugin, endpoint: "` + plugin.Endpoint + `", timeout: ` + timeout + `}}`
	}
	s := start(t, on(kept), encrypting(t, "secrets", kms("3s")).use)
	other := start(t, on(kept), encrypting(t, "secrets", kms("3s")).use)
	s.send("POST", inNamespace("secrets"), secret("a", planted)).ok()
	s.send("POST", inNamespace("secrets"), secret("b", planted)).ok()
	other.eventually("read by the other server", func() bool { return other.send("GET", inNamespace("secrets", "b"), nil).Code == http.StatusOK })

	plugin.Stop() // the other server's seed is unknown to this one
	from := other.send("PATCH", inNamespace("secrets", "a"), object{"stringData": object{"key": "changed"}}, "Content-Type", "application/merge-patch+json").ok().version()
	status := s.send("GET", inNamespace("secrets", "a"), nil).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	if !strings.HasPrefix(status.Message, "Internal error occurred: failed to decrypt DEK, error: ") {
		t.Errorf("a read says %q", status.Message)
	}
	status = s.send("GET", inNamespace("secrets"), nil).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	if !strings.HasPrefix(status.Message, `Internal error occurred: unable to transform key "/registry/secrets/default/a": failed to decrypt DEK, error: `) {
		t.Errorf("a list says %q", status.Message)
	}
	if got := s.secretValue("b"); got != planted {
		t.Errorf("another object: %q", got)
	}
	s.send("GET", inNamespace("configmaps"), nil).ok()
	s.send("GET", "/api/v1/namespaces/kube-system/secrets", nil).ok()
	s.send("POST", inNamespace("secrets"), secret("a", "lost")).refused(http.StatusConflict, metav1.StatusReasonAlreadyExists)

	plugin.Resume(t)
	s.eventually("read again", func() bool { return s.send("GET", inNamespace("secrets"), nil).Code == http.StatusOK })
	if got := s.secretValue("a"); got != "changed" {
		t.Errorf("after that it is %q", got)
	}
	if got := s.send("GET", inNamespace("secrets", "a"), nil).ok().version(); got != from {
		t.Errorf("its version is %d, want %d", got, from)
	}
}

// TestKMSHealth shows the plugin's state where upstream does.
func TestKMSHealth(t *testing.T) {
	plugin := kmstest.Start(t)
	plugin.Stop()
	s := start(t, encrypting(t, "secrets", `{kms: {apiVersion: v2, name: plugin, endpoint: "`+plugin.Endpoint+`", timeout: 100ms}}`).use)
	for _, path := range []string{"/healthz", "/readyz", "/healthz/kms-providers", "/readyz/kms-providers"} {
		if got := s.send("GET", path, nil); got.Code != http.StatusInternalServerError || !strings.Contains(string(got.Body), "[-]kms-providers failed: reason withheld") {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	s.send("GET", "/livez", nil).ok()
	s.send("GET", "/readyz?exclude=kms-providers", nil).ok()
	status := s.send("POST", inNamespace("secrets"), secret("a", planted)).refused(http.StatusInternalServerError, metav1.StatusReasonInternalError)
	if status.Message != "Internal error occurred: got unexpected nil transformer" {
		t.Errorf("a write says %q", status.Message)
	}
	s.send("POST", inNamespace("configmaps"), configMap("a")).ok()
	s.send("GET", inNamespace("secrets"), nil).ok()
	if got := start(t).send("GET", "/readyz/kms-providers", nil); got.Code != http.StatusNotFound {
		t.Errorf("without a configuration: %d", got.Code)
	}
}

// TestRotation has writers write while keys are rotated: added, made the first, everything rewritten, and the old one removed. Nothing is lost.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	database, err := etcd.Embed(t.Context(), etcd.EmbedOptions{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { database.Close() })
	config := encrypting(t, "secrets", cbcA)
	s := start(t, on(database), config.use, func(o *apiserver.Options) { o.ReloadEncryption, o.ReloadEncryptionEvery = true, 20*time.Millisecond })

	const writers, kept = 16, 5
	var running sync.WaitGroup
	var stop atomic.Bool
	last := make([][kept]int, writers)
	for w := range writers {
		for i := range kept {
			s.send("POST", inNamespace("secrets"), secret(fmt.Sprintf("s-%d-%d", w, i), "0")).ok()
		}
		running.Go(func() {
			for n := 1; !stop.Load(); n++ {
				i := n % kept
				got := s.send("PATCH", inNamespace("secrets", fmt.Sprintf("s-%d-%d", w, i)), object{"stringData": object{"key": fmt.Sprint(n)}}, "Content-Type", "application/merge-patch+json")
				if got.Code != http.StatusOK {
					t.Errorf("write %d of writer %d: %d %s", n, w, got.Code, got.Body)
					return
				}
				last[w][i] = n
			}
		})
	}
	// prefixes returns how many Secrets are stored with each prefix.
	prefixes := func() map[string]int {
		found := map[string]int{}
		list, err := database.List(t.Context(), "/registry/secrets/", store.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range list.KVs {
			found[strings.Join(strings.SplitN(string(kv.Value), ":", 6)[:5], ":")]++
		}
		return found
	}
	applied := func(what, prefix string) {
		s.eventually(what, func() bool {
			name := fmt.Sprintf("probe-%d", time.Now().UnixNano())
			s.send("POST", inNamespace("secrets"), secret(name, "0")).ok()
			defer s.send("DELETE", inNamespace("secrets", name), nil)
			return strings.HasPrefix(s.storedBytes("/registry/secrets/default/"+name), prefix)
		})
	}
	for round, step := range []struct{ name, old, next, prefix string }{
		{"b", cbcA, gcmB, "k8s:enc:aesgcm:v1:b"}, {"c", gcmB, boxC, "k8s:enc:secretbox:v1:c"}, {"a", boxC, cbcA, "k8s:enc:aescbc:v1:a"},
	} {
		reloads := s.reloads()
		config.set("secrets", step.old, step.next)
		s.eventually("the key is added", func() bool { return s.reloads() > reloads })
		config.set("secrets", step.next, step.old)
		applied("the key is the first", step.prefix)
		list := into[corev1.SecretList](s.send("GET", inNamespace("secrets"), nil).ok())
		for _, one := range list.Items { // as upstream's documentation says: kubectl get secrets -A -o json | kubectl replace -f -
			one.APIVersion, one.Kind = "v1", "Secret"
			if got := s.send("PUT", inNamespace("secrets", one.Name), one); got.Code != http.StatusOK && got.Code != http.StatusConflict && got.Code != http.StatusNotFound {
				t.Errorf("rewrite of %s: %d %s", one.Name, got.Code, got.Body)
			}
		}
		if found := prefixes(); len(found) != 1 || found[step.prefix] == 0 {
			t.Errorf("round %d: stored are %v", round, found)
		}
		reloads = s.reloads()
		config.set("secrets", step.next)
		s.eventually("the old key is removed", func() bool { return s.reloads() > reloads })
	}
	stop.Store(true)
	running.Wait()
	total := 0
	check := func(s *server) {
		for w := range writers {
			for i := range kept {
				if got, want := s.secretValue(fmt.Sprintf("s-%d-%d", w, i)), fmt.Sprint(last[w][i]); got != want {
					t.Errorf("secret %d of writer %d is %s, want %s", i, w, got, want)
				}
				total += last[w][i]
			}
		}
	}
	check(s)
	s.api.Close()
	check(start(t, on(database), encrypting(t, "secrets", cbcA).use)) // with the last key alone
	if total == 0 {
		t.Error("nothing was written")
	}
}

// reloads returns how often the configuration of encryption was reloaded.
func (s *server) reloads() (n int) {
	s.t.Helper()
	for line := range strings.SplitSeq(string(s.send("GET", "/metrics", nil).ok().Body), "\n") {
		if strings.HasPrefix(line, "apiserver_encryption_config_controller_automatic_reloads_total{") && strings.Contains(line, `status="success"`) {
			fmt.Sscan(line[strings.LastIndex(line, " "):], &n)
		}
	}
	return n
}

// TestRewriteSecrets turns encryption on for Secrets that are stored in clear, and replaces its key, by the file alone.
func TestRewriteSecrets(t *testing.T) {
	kept := sharedStore(t)
	s := start(t, on(kept))
	for i := range 20 {
		s.send("POST", inNamespace("secrets"), secret(fmt.Sprint("s-", i), planted)).ok()
	}
	s.api.Close()
	config := encrypting(t, "secrets", boxC, inClear)
	s = start(t, on(kept), config.use, func(o *apiserver.Options) {
		o.ReloadEncryption, o.ReloadEncryptionEvery, o.RewriteSecrets = true, 5*time.Millisecond, true
	})
	all := func(prefix string) {
		s.eventually("all are stored with "+prefix, func() bool {
			for i := range 20 {
				if !strings.HasPrefix(s.storedBytes(fmt.Sprint("/registry/secrets/default/s-", i)), prefix) {
					return false
				}
			}
			return true
		})
	}
	all("k8s:enc:secretbox:v1:c:")
	config.set("secrets", gcmB, boxC)
	all("k8s:enc:aesgcm:v1:b:")
	config.set("secrets", inClear, gcmB)
	all("k8s\x00")
	if got := s.secretValue("s-7"); got != planted {
		t.Errorf("read %q", got)
	}
}

// BenchmarkEncryptedCreate creates Secrets, with each provider.
func BenchmarkEncryptedCreate(b *testing.B) {
	plugin := kmstest.Start(b)
	for _, c := range []struct{ name, provider string }{{"none", ""}, {"identity", inClear}, {"aescbc", cbcA}, {"aesgcm", gcmB}, {"secretbox", boxC},
		{"kms", `{kms: {apiVersion: v2, name: plugin, endpoint: "` + plugin.Endpoint + `"}}`}} {
		b.Run(c.name, func(b *testing.B) {
			s := start(b, func(o *apiserver.Options) {
				if c.provider != "" {
					encrypting(b, "secrets", c.provider).use(o)
				}
			})
			value := strings.Repeat(planted, 40)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.send("POST", inNamespace("secrets"), secret(fmt.Sprint("s-", i), value)).ok()
			}
		})
	}
}
