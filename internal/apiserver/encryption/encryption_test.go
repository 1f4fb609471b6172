package encryption_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/encryption"
	"skiff/internal/apiserver/encryption/kmstest"
)

const (
	head  = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n"
	keyA  = "{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}"
	keyB  = "{name: b, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}"
	keyA2 = "{name: a, secret: YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk=}" // another key of the same name
)

// entry returns the part of a configuration for resources.
func entry(resources, providers string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers: [%s]\n", resources, providers)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".part", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".part", path); err != nil {
		t.Fatal(err)
	}
}

// start returns the encryption that entries of a configuration describe.
func start(t testing.TB, entries string, change ...func(*encryption.Options)) *encryption.Encryption {
	t.Helper()
	opts := encryption.Options{File: filepath.Join(t.TempDir(), "config.yaml"), Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&opts)
	}
	write(t, opts.File, head+entries)
	e, err := encryption.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	e.Run()
	return e
}

var secrets = schema.GroupResource{Resource: "secrets"}

const key = "/registry/secrets/default/a"

func store(t testing.TB, e *encryption.Encryption, gr schema.GroupResource, value string) []byte {
	t.Helper()
	stored, err := e.ForResource(gr).ToStorage(t.Context(), key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// read fails the test unless the stored bytes are those of a value.
func read(t testing.TB, e *encryption.Encryption, stored []byte, want string, wantStale bool) {
	t.Helper()
	got, stale, err := e.ForResource(secrets).FromStorage(t.Context(), key, stored)
	if err != nil || string(got) != want || stale != wantStale {
		t.Errorf("read %q, stale %v, %v; want %q, stale %v", got, stale, err, want, wantStale)
	}
}

// fails fails the test unless reading the stored bytes fails with an error of a text.
func fails(t testing.TB, e *encryption.Encryption, stored []byte, want string) error {
	t.Helper()
	got, _, err := e.ForResource(secrets).FromStorage(t.Context(), key, stored)
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("read %q, %v; want an error that says %q", got, err, want)
	}
	return err
}

// providers are the providers with keys of the file, without their names.
var providers = []string{"aescbc", "aesgcm", "secretbox"}

func keyed(provider string, keys ...string) string {
	return fmt.Sprintf("%s: {keys: [%s]}", provider, strings.Join(keys, ", "))
}

func TestProviders(t *testing.T) {
	planted := strings.Repeat("a planted value ", 100)
	for _, name := range providers {
		t.Run(name, func(t *testing.T) {
			one := start(t, entry("secrets", "{"+keyed(name, keyA)+"}"))
			stored := store(t, one, secrets, planted)
			if !strings.HasPrefix(string(stored), "k8s:enc:"+name+":v1:a:") || bytes.Contains(stored, []byte("planted")) {
				t.Errorf("stored is %q", stored)
			}
			if again := store(t, one, secrets, planted); bytes.Equal(again, stored) {
				t.Error("the same value is stored as the same bytes")
			}
			read(t, one, stored, planted, false)
			read(t, one, store(t, one, secrets, ""), "", false)

			read(t, start(t, entry("secrets", "{"+keyed(name, keyB, keyA)+"}")), stored, planted, true)
			read(t, start(t, entry("secrets", "{"+keyed(name, keyA, keyB)+"}")), stored, planted, false)
			read(t, start(t, entry("secrets", "{identity: {}}, {"+keyed(name, keyA)+"}")), stored, planted, true)
			// Two keys of one name in two elements: the one that fits is found.
			read(t, start(t, entry("secrets", "{"+keyed(name, keyA2)+"}, {"+keyed(name, keyA)+"}")), stored, planted, true)

			fails(t, start(t, entry("secrets", "{"+keyed(name, keyB)+"}")), stored, "no matching key was found for the provided ")
			fails(t, start(t, entry("secrets", "{identity: {}}")), stored, "no matching prefix found")
			fails(t, start(t, entry("configmaps", "{"+keyed(name, keyA)+"}")), stored, "identity transformer tried to read encrypted data")
			if err := fails(t, start(t, entry("secrets", "{"+keyed(name, keyA2)+"}")), stored, ""); encryption.Temporary(err) {
				t.Errorf("a wrong key is taken for temporary: %v", err)
			}
			fails(t, one, stored[:len("k8s:enc:")+len(name)+len(":v1:a:")+5], "the stored data was shorter than the required size")
		})
	}
}

func TestTampered(t *testing.T) {
	for _, name := range []string{"aesgcm", "secretbox"} {
		e := start(t, entry("secrets", "{"+keyed(name, keyA)+"}"))
		stored := store(t, e, secrets, "value")
		for i := len("k8s:enc:" + name + ":v1:a:"); i < len(stored); i++ {
			tampered := bytes.Clone(stored)
			tampered[i] ^= 1
			fails(t, e, tampered, "")
		}
	}
	plugin := kmstest.Start(t)
	for _, provider := range []string{keyed("aesgcm", keyA), kms(plugin)} {
		e := start(t, entry("secrets", "{"+provider+"}"))
		stored := store(t, e, secrets, "value")
		if _, _, err := e.ForResource(secrets).FromStorage(t.Context(), "/registry/secrets/default/b", stored); err == nil {
			t.Errorf("%s: a value that was copied to another key was read", provider)
		}
	}
}

func TestResources(t *testing.T) {
	gr := schema.ParseGroupResource
	e := start(t, entry("events", "{identity: {}}")+
		entry("secrets, pandas.bears.example", "{"+keyed("aescbc", keyA)+"}")+
		entry("configmaps", "{"+keyed("aesgcm", keyA)+"}")+
		entry("configmaps", "{"+keyed("secretbox", keyA)+"}")+
		entry("'*.apps'", "{"+keyed("aesgcm", keyB)+"}")+
		entry("'*.'", "{"+keyed("secretbox", keyB)+"}")+
		entry("'*.*'", "{"+keyed("aescbc", keyB)+"}"))
	for name, want := range map[string]string{
		"events": "v", "secrets": "aescbc:v1:a", "pandas.bears.example": "aescbc:v1:a", "configmaps": "aesgcm:v1:a", "deployments.apps": "aesgcm:v1:b",
		"pods": "secretbox:v1:b", "leases.coordination.k8s.io": "aescbc:v1:b", "koalas.bears.example": "aescbc:v1:b",
	} {
		stored := string(store(t, e, gr(name), "v"))
		if want != "v" {
			want = "k8s:enc:" + want + ":"
		}
		if !strings.HasPrefix(stored, want) {
			t.Errorf("%s: stored %q, want %q", name, stored, want)
		}
	}
	// The second entry of a resource adds providers to read with.
	boxed := store(t, start(t, entry("configmaps", "{"+keyed("secretbox", keyA)+"}")), gr("configmaps"), "v")
	if got, stale, err := e.ForResource(gr("configmaps")).FromStorage(t.Context(), key, boxed); err != nil || !stale || string(got) != "v" {
		t.Errorf("read %q, stale %v, %v", got, stale, err)
	}
}

// refusals returns the configurations that upstream refuses, and its errors, as test/encryptiondiff has recorded them.
func refusals(t testing.TB) (all []struct{ name, config, err string }) {
	t.Helper()
	text, err := os.ReadFile("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	for section := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		head, message, ok := strings.Cut(section, "\n----\n")
		name, config, ok2 := strings.Cut(head, "\n")
		if !ok || !ok2 {
			t.Fatalf("malformed section %q", section)
		}
		all = append(all, struct{ name, config, err string }{strings.TrimPrefix(name, "# "), config + "\n", message})
	}
	return all
}

func TestRefused(t *testing.T) {
	for _, c := range refusals(t) {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			write(t, path, c.config)
			_, err := encryption.New(encryption.Options{File: path, Log: slog.New(slog.DiscardHandler)})
			got := "accepted"
			if err != nil {
				got = strings.ReplaceAll(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "--encryption-provider-config: "), path, "FILE"), "\n", "\\n")
			}
			if got != c.err {
				t.Errorf("skiff says\n%s\nupstream says\n%s", got, c.err)
			}
		})
	}
	dir := t.TempDir()
	empty, large := filepath.Join(dir, "empty"), filepath.Join(dir, "large")
	write(t, empty, "")
	write(t, large, strings.Repeat("#", 2<<20))
	secret := filepath.Join(dir, "two")
	write(t, secret, head+entry("secrets", "{identity: {}, "+keyed("aescbc", keyA)+"}"))
	for path, want := range map[string]string{
		filepath.Join(dir, "none"): "error while loading file: error reading encryption provider configuration file",
		empty:                      "is empty",
		large:                      "is larger than 1048576 bytes",
		secret:                     `[{"Name":"a","Secret":"REDACTED"}]`, // unlike upstream's
	} {
		_, err := encryption.New(encryption.Options{File: path, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that says %q", path, err, want)
		}
	}
}

// TestUpstreamValues reads what upstream has written, as test/encryptiondiff has recorded it.
func TestUpstreamValues(t *testing.T) {
	text, err := os.ReadFile("testdata/upstream.json")
	if err != nil {
		t.Fatal(err)
	}
	var recorded []struct {
		Providers     string
		Value, Stored []byte
	}
	if err := json.Unmarshal(text, &recorded); err != nil || len(recorded) < 10 {
		t.Fatal(len(recorded), err)
	}
	plugin := kmstest.Start(t)
	for _, r := range recorded {
		if bytes.Contains(r.Stored, []byte("b.example.com")) {
			plugin.SetAnnotations(map[string][]byte{"a.example.com": []byte("1"), "b.example.com": nil})
		}
		e := start(t, "- resources: [secrets]\n  providers: "+strings.ReplaceAll(r.Providers, "ENDPOINT", plugin.Endpoint)+"\n")
		read(t, e, r.Stored, string(r.Value), false)
	}
}

func kms(p *kmstest.Plugin) string {
	return fmt.Sprintf("kms: {apiVersion: v2, name: plugin, endpoint: '%s', timeout: 500ms}", p.Endpoint)
}

func withClock(c *testingclock.FakeClock) func(*encryption.Options) {
	return func(o *encryption.Options) { o.Clock = c }
}

// eventually waits for a condition, at most as long as a slow machine may need.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// step moves a clock once something waits for it.
func step(t testing.TB, c *testingclock.FakeClock, d time.Duration) {
	t.Helper()
	eventually(t, "a goroutine waits for the clock", c.HasWaiters)
	c.Step(d)
}

func TestKMSReusesSeeds(t *testing.T) {
	plugin := kmstest.Start(t)
	e := start(t, entry("secrets", "{"+kms(plugin)+"}"))
	stored := store(t, e, secrets, "value")
	if !strings.HasPrefix(string(stored), "k8s:enc:kms:v2:plugin:") || bytes.Contains(stored, []byte("value")) {
		t.Errorf("stored is %q", stored)
	}
	for range 100 {
		read(t, e, store(t, e, secrets, "value"), "value", false)
	}
	if n := plugin.Calls("Encrypt"); n != 1 {
		t.Errorf("the plugin encrypted %d seeds for 101 values, want 1", n)
	}
	if n := plugin.Calls("Decrypt"); n != 0 {
		t.Errorf("the plugin decrypted %d times, though the seed is the server's own", n)
	}
	restarted := start(t, entry("secrets", "{"+kms(plugin)+"}"))
	for range 100 {
		read(t, restarted, stored, "value", false) // another seed of the same key
	}
	if n := plugin.Calls("Decrypt"); n != 1 {
		t.Errorf("the plugin decrypted %d times for 100 values of one seed, want 1", n)
	}
}

func TestKMSKeyRotation(t *testing.T) {
	plugin := kmstest.Start(t)
	c := testingclock.NewFakeClock(time.Now())
	e := start(t, entry("secrets", "{"+kms(plugin)+"}"), withClock(c))
	old := store(t, e, secrets, "value")
	plugin.SetKeyID("2")
	step(t, c, time.Minute)
	eventually(t, "values are encrypted with the new key", func() bool { return bytes.Contains(store(t, e, secrets, "value"), []byte("\x12\x012")) })
	read(t, e, old, "value", true)
	read(t, e, store(t, e, secrets, "value"), "value", false)
	if err := e.CheckPlugins(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestKMSOutage shows what goes on without the plugin: reads for good, writes for three minutes.
func TestKMSOutage(t *testing.T) {
	plugin := kmstest.Start(t)
	c := testingclock.NewFakeClock(time.Now())
	e := start(t, entry("secrets", "{"+kms(plugin)+"}"), withClock(c))
	stored := store(t, e, secrets, "value")
	plugin.Stop()
	step(t, c, 2*time.Minute)
	eventually(t, "the health check fails", func() bool { return e.CheckPlugins(t.Context()) != nil })
	read(t, e, store(t, e, secrets, "value"), "value", false)
	c.Step(2 * time.Minute)
	_, err := e.ForResource(secrets).ToStorage(t.Context(), key, []byte("value"))
	if err == nil || !strings.Contains(err.Error(), "encryptedDEKSource with keyID hash \"sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b\" expired at ") || !encryption.Temporary(err) {
		t.Errorf("a write four minutes after the plugin was last well: %v", err)
	}
	read(t, e, stored, "value", false)

	plugin.Resume(t)
	eventually(t, "the plugin is well again", func() bool { c.Step(10 * time.Second); return e.CheckPlugins(t.Context()) == nil })
	read(t, e, store(t, e, secrets, "value"), "value", false)
	if n := plugin.Calls("Encrypt"); n != 1 {
		t.Errorf("%d seeds were made, though the key has not changed", n)
	}
}

// TestKMSStartsLater starts the server before the plugin.
func TestKMSStartsLater(t *testing.T) {
	plugin := kmstest.Start(t)
	plugin.Stop()
	c := testingclock.NewFakeClock(time.Now())
	e := start(t, entry("secrets", "{"+kms(plugin)+"}"), withClock(c))
	_, err := e.ForResource(secrets).ToStorage(t.Context(), key, []byte("value"))
	if err == nil || !encryption.Temporary(err) {
		t.Errorf("a write before the plugin was there: %v", err)
	}
	if err := e.CheckPlugins(t.Context()); err == nil || !strings.Contains(err.Error(), "failed to perform status section of the healthz check for KMS Provider plugin") {
		t.Errorf("the health check says %v", err)
	}
	plugin.Resume(t)
	eventually(t, "the plugin is well", func() bool { c.Step(10 * time.Second); return e.CheckPlugins(t.Context()) == nil })
	read(t, e, store(t, e, secrets, "value"), "value", false)
}

// TestKMSFaults lets plugins answer in ways that they should not.
func TestKMSFaults(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(*kmstest.Plugin)
		err   string
	}{
		{"not well", func(p *kmstest.Plugin) { p.SetHealthz("on fire") }, "kms-provider-0: kmsv2 Provider plugin is not healthy, error: got unexpected healthz status: on fire"},
		{"another version", func(p *kmstest.Plugin) { p.SetVersion("v1beta1") }, "expected KMSv2 API version v2, got v1beta1"},
		{"no key", func(p *kmstest.Plugin) { p.SetKeyID("") }, `got invalid KMSv2 KeyID hash "": keyID is empty`},
		{"a long key", func(p *kmstest.Plugin) { p.SetKeyID(strings.Repeat("k", 1025)) }, "keyID is 1025 bytes, which exceeds the max size of 1024"},
		{"another key than the status says", func(p *kmstest.Plugin) { p.SetKeyID("2"); p.SetEncryptKeyID("3") }, "failed to rotate DEK uid="},
		{"garbage", func(p *kmstest.Plugin) { p.SetKeyID("2"); p.SetGarbage(true) }, "encrypted DEK source is 4096 bytes, which exceeds the max size of 1024"},
		{"annotations without a domain", func(p *kmstest.Plugin) {
			p.SetKeyID("2")
			p.SetAnnotations(map[string][]byte{"a": nil})
		}, "failed to validate annotations: annotations: Invalid value: \"a\""},
		{"large annotations", func(p *kmstest.Plugin) {
			p.SetKeyID("2")
			p.SetAnnotations(map[string][]byte{"a.b.c": make([]byte, 33<<10)})
		}, "which exceeds the max size of 32768"},
		{"an answer without bounds", func(p *kmstest.Plugin) { p.SetHealthz(strings.Repeat("h", 1<<20)) }, "received message larger than max"},
		{"no answer", (*kmstest.Plugin).Hang, "DeadlineExceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plugin := kmstest.Start(t)
			clock := testingclock.NewFakeClock(time.Now())
			e := start(t, entry("secrets", "{"+kms(plugin)+"}"), withClock(clock))
			stored := store(t, e, secrets, "value")
			c.fault(plugin)
			clock.Step(25 * time.Second)
			if err := e.CheckPlugins(t.Context()); err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("the health check says %v, want %q", err, c.err)
			}
			read(t, e, stored, "value", false) // with what was known before
			read(t, e, store(t, e, secrets, "value"), "value", false)
		})
	}
}

// TestKMSDecryptFaults restarts the server, so that the plugin must decrypt the seed.
func TestKMSDecryptFaults(t *testing.T) {
	plugin := kmstest.Start(t)
	stored := store(t, start(t, entry("secrets", "{"+kms(plugin)+"}")), secrets, "value")
	e := start(t, entry("secrets", "{"+kms(plugin)+"}"))

	plugin.SetGarbage(true)
	fails(t, e, stored, "message authentication failed")
	plugin.SetGarbage(false)
	read(t, e, stored, "value", false) // a wrong seed is not kept

	e = start(t, entry("secrets", "{"+kms(plugin)+"}"))
	plugin.RemoveKey("1")
	if err := fails(t, e, stored, "failed to decrypt DEK, error: rpc error: code = NotFound desc = the key 1 is gone"); !encryption.Temporary(err) {
		t.Error("what the plugin refuses now is taken for lost")
	}
	plugin.Hang()
	began := time.Now()
	fails(t, e, stored, "DeadlineExceeded")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("a hanging plugin was waited for %v", took)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	calls := plugin.Calls("Decrypt")
	if _, _, err := e.ForResource(secrets).FromStorage(done, key, stored); err == nil || plugin.Calls("Decrypt") != calls {
		t.Errorf("the plugin was asked for a reader that does not wait: %v", err)
	}
}

func TestReload(t *testing.T) {
	c := testingclock.NewFakeClock(time.Now())
	registry := prometheus.NewRegistry()
	reloaded := make(chan struct{}, 10)
	path := filepath.Join(t.TempDir(), "config.yaml")
	e := start(t, entry("secrets", "{"+keyed("aescbc", keyA)+"}"), withClock(c), func(o *encryption.Options) {
		o.File, o.Reload, o.Metrics, o.Reloaded = path, true, registry, func() { reloaded <- struct{}{} }
	})
	if !e.Checked() || e.CheckPlugins(t.Context()) != nil {
		t.Error("without plugins the check kms-providers must be there and pass")
	}
	old := store(t, e, secrets, "value")

	write(t, path, head+entry("secrets", "{"+keyed("aesgcm", keyB)+"}, {"+keyed("aescbc", keyA)+"}"))
	step(t, c, time.Minute)
	<-reloaded
	read(t, e, old, "value", true)
	current := store(t, e, secrets, "value")
	read(t, e, current, "value", false)

	for _, bad := range []string{"{", "", head, head + entry("secrets", "{aescbc: {keys: [{name: a, secret: YQ==}]}}")} {
		failures := count(t, registry, "apiserver_encryption_config_controller_automatic_reloads_total", "failure")
		write(t, path, bad)
		step(t, c, time.Minute)
		eventually(t, "the file is refused", func() bool {
			return count(t, registry, "apiserver_encryption_config_controller_automatic_reloads_total", "failure") > failures
		})
		read(t, e, current, "value", false)
		read(t, e, old, "value", true)
	}

	plugin := kmstest.Start(t)
	plugin.SetHealthz("starting")
	write(t, path, head+entry("secrets", "{"+kms(plugin)+"}, {"+keyed("aesgcm", keyB)+"}"))
	step(t, c, time.Minute)
	eventually(t, "the plugin is asked", func() bool { return plugin.Calls("Status") > 0 })
	read(t, e, store(t, e, secrets, "value"), "value", false)
	if strings.HasPrefix(string(store(t, e, secrets, "value")), "k8s:enc:kms") {
		t.Error("a plugin that is not well is in use")
	}
	plugin.SetHealthz("ok")
	eventually(t, "the configuration is applied", func() bool { c.Step(time.Second); return len(reloaded) > 0 })
	if stored := store(t, e, secrets, "value"); !strings.HasPrefix(string(stored), "k8s:enc:kms:v2:plugin:") {
		t.Errorf("stored is %q", stored)
	}
	read(t, e, current, "value", true)
	fails(t, e, old, "no matching prefix found")
}

// count returns the value of a counter with a label.
func count(t testing.TB, g prometheus.Gatherer, name, label string) (sum float64) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func TestMetrics(t *testing.T) {
	plugin := kmstest.Start(t)
	registry := prometheus.NewRegistry()
	e := start(t, entry("secrets", "{"+kms(plugin)+"}")+entry("configmaps", "{"+keyed("aescbc", keyA)+"}"), func(o *encryption.Options) { o.Metrics = registry })
	read(t, e, store(t, e, secrets, "value"), "value", false)
	stored := store(t, e, schema.GroupResource{Resource: "configmaps"}, "value")
	fails(t, e, stored, "no matching prefix found")
	for _, c := range []struct {
		name, label string
		want        float64
	}{
		{"apiserver_storage_transformation_operations_total", "k8s:enc:kms:v2:plugin:", 2},
		{"apiserver_storage_transformation_operations_total", "k8s:enc:aescbc:v1:", 1},
		{"apiserver_storage_transformation_operations_total", "a:", 1},
		{"apiserver_storage_transformation_operations_total", "unknown", 1},
		{"apiserver_envelope_encryption_key_id_hash_total", "plugin", 2},
	} {
		if got := count(t, registry, c.name, c.label); got != c.want {
			t.Errorf("%s of %s is %v, want %v", c.name, c.label, got, c.want)
		}
	}
	for i := range 300 { // key ids do not make series without bound
		plugin.SetKeyID(fmt.Sprint("key-", i))
		_ = e.CheckPlugins(t.Context())
	}
}

func BenchmarkToStorage(b *testing.B) {
	plugin := kmstest.Start(b)
	value := bytes.Repeat([]byte("0123456789abcdef"), 64)
	for _, p := range []string{"identity: {}", keyed("aescbc", keyA), keyed("aesgcm", keyA), keyed("secretbox", keyA), kms(plugin)} {
		e := start(b, entry("secrets", "{"+p+"}"))
		name, _, _ := strings.Cut(p, ":")
		transformer := e.ForResource(secrets)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := transformer.ToStorage(b.Context(), key, value); err != nil {
					b.Fatal(err)
				}
			}
		})
		stored := store(b, e, secrets, string(value))
		b.Run(name+"/read", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := transformer.FromStorage(b.Context(), key, stored); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// FuzzConfiguration loads configurations: none may crash the server, and none that is accepted may lose a value.
func FuzzConfiguration(f *testing.F) {
	for _, c := range refusals(f) {
		f.Add([]byte(c.config))
	}
	f.Add([]byte(head + entry("secrets", "{"+keyed("aescbc", keyA)+"}, {identity: {}}")))
	f.Add([]byte(head + entry("'*.*'", "{"+keyed("secretbox", keyA)+"}")))
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if bytes.Contains(text, []byte("kms")) && bytes.Contains(text, []byte("v2")) {
			t.Skip("dials sockets")
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := encryption.New(encryption.Options{File: path, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return
		}
		defer e.Close()
		for _, gr := range []schema.GroupResource{secrets, {Group: "apps", Resource: "deployments"}} {
			tr := e.ForResource(gr)
			stored, err := tr.ToStorage(t.Context(), key, []byte("k8s\x00value"))
			if err != nil {
				continue
			}
			if got, stale, err := tr.FromStorage(t.Context(), key, stored); err != nil || stale || string(got) != "k8s\x00value" {
				t.Fatalf("read %q, stale %v, %v", got, stale, err)
			}
		}
	})
}

// FuzzFromStorage reads stored bytes of others.
func FuzzFromStorage(f *testing.F) {
	plugin := kmstest.Start(f)
	e := start(f, entry("secrets", strings.Join([]string{"{" + kms(plugin) + "}", "{" + keyed("aescbc", keyA) + "}", "{" + keyed("aesgcm", keyA) + "}", "{" + keyed("secretbox", keyA) + "}", "{identity: {}}"}, ", ")))
	for _, p := range append([]string{"identity: {}", kms(plugin)}, "aescbc", "aesgcm", "secretbox") {
		if !strings.Contains(p, ":") {
			p = keyed(p, keyA)
		}
		f.Add(store(f, start(f, entry("secrets", "{"+p+"}")), secrets, "k8s\x00value"))
	}
	f.Add([]byte("k8s:enc:kms:v2:plugin:\x0a\x01x\x12\x011\x1a\x01y\x22\x05\x0a\x03a.b\x28\x01"))
	done, cancel := context.WithCancel(context.Background())
	cancel() // the plugin is not asked
	f.Fuzz(func(t *testing.T, stored []byte) {
		value, _, err := e.ForResource(secrets).FromStorage(done, key, stored)
		if err == nil && encryption.IsEncrypted(stored) && bytes.Equal(value, stored) {
			t.Fatalf("encrypted bytes were taken for an object: %q", stored)
		}
	})
}
