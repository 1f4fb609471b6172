package config_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/authz/config"
)

// fixed is an authorizer with one decision.
type fixed struct {
	name     string
	decision authz.Decision
}

func (f fixed) Name() string { return f.name }

func (f fixed) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	return f.decision, f.name + " says so", nil
}

// parts are those of a test, with authorizers in place of Node, which has no opinion, and RBAC, which allows.
func parts(change ...func(*config.Parts)) config.Parts {
	p := config.Parts{
		Node: func() authz.Authorizer { return fixed{"node", authz.NoOpinion} }, RBAC: func() authz.Authorizer { return fixed{"rbac", authz.Allow} },
		Metrics: prometheus.NewRegistry(), ServerID: "apiserver-x", Backoff: &wait.Backoff{Duration: time.Millisecond, Steps: 2}, Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// write writes a file and returns its path.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const (
	nowhere = `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: s, user: u}}],
clusters: [{name: s, cluster: {server: "https://127.0.0.1:1/authorize"}}], users: [{name: u, user: {}}]}`
	anybody = `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"x","namespace":"*","resource":"*"}}`
)

// TestFlags: what the flags may say together.
func TestFlags(t *testing.T) {
	dir := t.TempDir()
	policies, kubeconfig := write(t, dir, "policies", anybody), write(t, dir, "kubeconfig", nowhere)
	for _, c := range []struct {
		name   string
		change func(*config.Options)
		err    string
	}{
		{"nothing", func(*config.Options) {}, "at least one authorization-mode must be passed"},
		{"one mode", func(o *config.Options) { o.Modes = []string{"RBAC"} }, ""},
		{"all modes", func(o *config.Options) {
			o.Modes, o.PolicyFile, o.WebhookConfigFile = authz.Modes(), policies, kubeconfig
		}, ""},
		{"another case", func(o *config.Options) { o.Modes = []string{"Rbac"} }, `authorization-mode "Rbac" is not a valid mode`},
		{"empty", func(o *config.Options) { o.Modes = []string{""} }, `authorization-mode "" is not a valid mode`},
		{"ABAC without policies", func(o *config.Options) { o.Modes = []string{"ABAC"} }, "authorization-mode ABAC's authorization policy file not passed"},
		{"Webhook without a kubeconfig", func(o *config.Options) { o.Modes = []string{"Webhook"} }, "authorization-mode Webhook's authorization config file not passed"},
		{"policies without ABAC", func(o *config.Options) { o.Modes, o.PolicyFile = []string{"RBAC"}, policies }, "cannot specify --authorization-policy-file without mode ABAC"},
		{"a kubeconfig without Webhook", func(o *config.Options) { o.Modes, o.WebhookConfigFile = []string{"RBAC"}, kubeconfig },
			"cannot specify --authorization-webhook-config-file without mode Webhook"},
		{"a mode twice", func(o *config.Options) { o.Modes = []string{"RBAC", "RBAC"} }, `authorization-mode ["RBAC" "RBAC"] has mode specified more than once`},
		{"several mistakes", func(o *config.Options) { o.Modes = []string{"x", "AlwaysAllow", "x"} },
			`[authorization-mode "x" is not a valid mode, authorization-mode ["x" "AlwaysAllow" "x"] has mode specified more than once]`},
		{"a file without a policy", func(o *config.Options) { o.Modes, o.PolicyFile = []string{"ABAC"}, kubeconfig }, "error reading policy file"},
		{"no file", func(o *config.Options) { o.Modes, o.PolicyFile = []string{"ABAC"}, dir+"/none" }, "no such file or directory"},
		{"no kubeconfig", func(o *config.Options) { o.Modes, o.WebhookConfigFile = []string{"Webhook"}, dir+"/none" }, "authorizer default: stat " + dir + "/none: no such file or directory"},
		{"a kubeconfig that is none", func(o *config.Options) {
			o.Modes, o.WebhookConfigFile = []string{"Webhook"}, write(t, dir, "nonsense", "hello")
		}, "authorizer default: error loading config file"},
		{"a version that does not exist", func(o *config.Options) {
			o.Modes, o.WebhookConfigFile, o.WebhookVersion = []string{"Webhook"}, kubeconfig, "v2"
		}, `authorizer default: unsupported webhook authorizer version "v2", supported versions are "v1", "v1beta1"`},
		{"a configuration and a mode", func(o *config.Options) { o.Modes, o.ConfigFile = []string{"RBAC"}, "/config" },
			"--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"},
		{"a configuration and a webhook's flag", func(o *config.Options) { o.ConfigFile, o.ModesGiven = "/config", func() bool { return true } },
			"--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"},
		{"a configuration that does not exist", func(o *config.Options) {
			o.Modes, o.ConfigFile, o.ModesGiven = []string{"Node"}, dir+"/none", func() bool { return false }
		}, "no such file or directory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := config.Default()
			c.change(&o)
			a, err := config.New(o, parts())
			if (err == nil) != (c.err == "") || !strings.Contains(errText(err), c.err) {
				t.Fatalf("%v, want %s", err, c.err)
			}
			if err == nil && a.Reloads() {
				t.Error("flags are reloaded")
			}
		})
	}
}

// TestOnlyWhatIsOnIsMade: authorizers that are not on are not made, and the order is that of the flag.
func TestOnlyWhatIsOnIsMade(t *testing.T) {
	p := parts(func(p *config.Parts) {
		p.Node = func() authz.Authorizer { t.Error("Node was made"); return nil }
	})
	a, err := config.New(config.Options{Modes: []string{"AlwaysDeny", "RBAC"}}, p)
	if err != nil {
		t.Fatal(err)
	}
	if decision, reason, err := a.Authorizer.Authorize(t.Context(), &authz.Attributes{User: &authn.User{Username: "x"}}); decision != authz.Allow || reason != "rbac says so" || err != nil {
		t.Error(decision, reason, err)
	}
	if decision, reason, err := a.Authorizer.Authorize(t.Context(), &authz.Attributes{User: &authn.User{Groups: []string{authn.SystemMasters}}}); decision != authz.Allow || reason != "" || err != nil {
		t.Error(decision, reason, err)
	}
	want := map[string]float64{"apiserver_authorization_decisions_total allowed rbac RBAC": 1, "apiserver_authorization_decisions_total allowed alwaysdeny AlwaysDeny": 0}
	if got := gather(t, p.Metrics.(*prometheus.Registry)); !equal(got, want) {
		t.Errorf("metrics %v", got)
	}
}

func equal(a, b map[string]float64) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// gather returns the values of all metrics, by name and labels.
func gather(t testing.TB, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

const (
	head     = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n"
	rbacOnly = head + "authorizers: [{type: RBAC, name: rbac}]\n"
)

// hook returns a configuration with a webhook and RBAC; the text changes fields of the webhook.
func hook(kubeconfig string, replace ...string) string {
	text := head + `authorizers:
- type: Webhook
  name: hook
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: "` + kubeconfig + `"}
    matchConditions: [{expression: "has(request.resourceAttributes)"}]
- {type: RBAC, name: rbac}
`
	return strings.NewReplacer(replace...).Replace(text)
}

// TestConfiguration: what a configuration may say, with upstream's paths of fields.
func TestConfiguration(t *testing.T) {
	dir := t.TempDir()
	k := write(t, dir, "kubeconfig", nowhere)
	with := func(replace ...string) string { return hook(k, replace...) }
	for _, c := range []struct{ name, text, err string }{
		{"one type", rbacOnly, ""},
		{"a webhook", with(), ""},
		{"v1beta1", with("io/v1\n", "io/v1beta1\n"), ""},
		{"v1alpha1", with("io/v1\n", "io/v1alpha1\n"), ""},
		{"JSON", `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"AuthorizationConfiguration","authorizers":[{"type":"RBAC","name":"rbac"}]}`, ""},
		{"two webhooks", with("- {type: RBAC", `- type: Webhook
  name: second.example.com
  webhook: {timeout: 30s, subjectAccessReviewVersion: v1beta1, failurePolicy: NoOpinion, authorizedTTL: 1s, unauthorizedTTL: 1ms, cacheAuthorizedRequests: false, connectionInfo: {type: KubeConfigFile, kubeConfigFile: "`+k+`"}}
- {type: RBAC`), ""},

		{"nothing", "", "authorizers: Required value: at least one authorization mode must be defined"},
		{"no authorizers", head, "authorizers: Required value: at least one authorization mode must be defined"},
		{"no YAML", "{", "failed to load AuthorizationConfiguration from file: couldn't get version/kind; json parse error: unexpected end of JSON input"},
		{"another kind", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n", "failed to load AuthorizationConfiguration from file: expected AuthorizationConfiguration, got *apiserver.AdmissionConfiguration"},
		{"another version", "apiVersion: apiserver.config.k8s.io/v2\nkind: AuthorizationConfiguration\n", `no kind "AuthorizationConfiguration" is registered for version "apiserver.config.k8s.io/v2"`},
		{"no kind", "authorizers: []", "failed to load AuthorizationConfiguration from file: Object 'Kind' is missing in 'authorizers: []'"},
		{"an unknown field", rbacOnly + "more: 1\n", `strict decoding error: unknown field "more"`},
		{"an unknown field of a webhook", with("timeout: 3s", "timeout: 3s\n    retries: 3"), `strict decoding error: unknown field "authorizers[0].webhook.retries"`},
		{"a field twice", with("timeout: 3s", "timeout: 3s\n    timeout: 4s"), `key "timeout" already set in map`},
		{"a time that is none", with("timeout: 3s", "timeout: soon"), `time: invalid duration "soon"`},
		{"no type", head + "authorizers: [{name: x}]", "authorizers[0].type: Required value"},
		{"another type", head + "authorizers: [{type: Magic, name: x}]", `authorizers[0].type: Unsupported value: "Magic": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"`},
		{"a type twice", head + "authorizers: [{type: RBAC, name: rbac}, {type: RBAC, name: other}]", `authorizers[1].type: Duplicate value: "RBAC"`},
		{"no name", head + "authorizers: [{type: RBAC}]", "authorizers[0].name: Required value"},
		{"a name twice", with("name: rbac", "name: hook"), `authorizers[1].name: Duplicate value: "hook"`},
		{"a name that is none", with("name: hook", "name: Hook_1"), `authorizers[0].name: Invalid value: "Hook_1": authorizer name is invalid`},
		{"a type's name", head + "authorizers: [{type: RBAC, name: roles}]", "expected name rbac for authorizer RBAC instead of roles"},
		{"ABAC without policies", head + "authorizers: [{type: ABAC, name: abac}]", "authorization-mode ABAC's authorization policy file not passed"},
		{"no webhook", head + "authorizers: [{type: Webhook, name: x}]", "authorizers[0].webhook: Required value: required when type=Webhook"},
		{"a webhook of another type", head + "authorizers: [{type: RBAC, name: rbac, webhook: {}}]", `authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook`},
		{"no timeout", with("timeout: 3s", ""), "authorizers[0].timeout: Required value"},
		{"a timeout that is too long", with("timeout: 3s", "timeout: 31s"), `authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s`},
		{"a negative timeout", with("timeout: 3s", "timeout: -3s"), `authorizers[0].timeout: Invalid value: "-3s": must be > 0s and <= 30s`},
		{"a negative TTL", with("timeout: 3s", "timeout: 3s\n    authorizedTTL: -3s\n    unauthorizedTTL: -4s"),
			`[authorizers[0].authorizedTTL: Invalid value: "-3s": must be > 0s, authorizers[0].unauthorizedTTL: Invalid value: "-4s": must be > 0s]`},
		{"no review version", with("    subjectAccessReviewVersion: v1\n", ""), "authorizers[0].subjectAccessReviewVersion: Required value"},
		{"another review version", with(" subjectAccessReviewVersion: v1", " subjectAccessReviewVersion: v2"), `authorizers[0].subjectAccessReviewVersion: Unsupported value: "v2": supported values: "v1", "v1beta1"`},
		{"no condition version", with("    matchConditionSubjectAccessReviewVersion: v1\n", ""), "authorizers[0].matchConditionSubjectAccessReviewVersion: Required value: required if match conditions are specified"},
		{"another condition version", with("matchConditionSubjectAccessReviewVersion: v1", "matchConditionSubjectAccessReviewVersion: v1beta1"),
			`authorizers[0].matchConditionSubjectAccessReviewVersion: Unsupported value: "v1beta1": supported values: "v1"`},
		{"no failure policy", with("    failurePolicy: Deny\n", ""), "authorizers[0].failurePolicy: Required value"},
		{"another failure policy", with("failurePolicy: Deny", "failurePolicy: Ignore"), `authorizers[0].failurePolicy: Unsupported value: "Ignore": supported values: "NoOpinion", "Deny"`},
		{"no connection", with("{type: KubeConfigFile, kubeConfigFile: \""+k+"\"}", "{}"), "authorizers[0].connectionInfo.type: Required value"},
		{"another connection", with("{type: KubeConfigFile,", "{type: Kubeconfig,"), "authorizers[0].connectionInfo.type: Unsupported value"},
		{"no kubeconfig", with(", kubeConfigFile: \""+k+"\"", ""), "authorizers[0].connectionInfo.kubeConfigFile: Required value"},
		{"a relative path", with(k, "kubeconfig"), `authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "kubeconfig": must be an absolute path`},
		{"a kubeconfig that does not exist", with(k, dir+"/none"), `authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "` + dir + `/none": error loading file: stat ` + dir + `/none: no such file or directory`},
		{"a directory", with(k, dir), `authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "` + dir + `": must be a regular file`},
		{"a kubeconfig that is none", with(k, write(t, dir, "nonsense", "hello")), "authorizer hook: error loading config file"},
		{"in the cluster", with("{type: KubeConfigFile, kubeConfigFile: \""+k+"\"}", "{type: InClusterConfig}"), `authorizers[0].connectionInfo.type: Invalid value: "InClusterConfig": is not allowed for kube-apiserver`},
		{"in the cluster with a kubeconfig", with("KubeConfigFile,", "InClusterConfig,"), `authorizers[0].connectionInfo.kubeConfigFile: Invalid value: "` + k + `": can only be set when type=KubeConfigFile`},
		{"an empty condition", with(`"has(request.resourceAttributes)"`, `" "`), "authorizers[0].matchConditions[0].expression: Required value"},
		{"a condition twice", with(`{expression: "has(request.resourceAttributes)"}`, `{expression: "true"}, {expression: "true"}`), `authorizers[0].matchConditions[1].expression: Duplicate value: "true"`},
		{"too many conditions", with(`{expression: "has(request.resourceAttributes)"}`, strings.Repeat(`{expression: "true"},`, 65)), "authorizers[0].matchConditions: Too many: 65: must have at most 64 items"},
		{"a condition that does not compile", with("has(request.resourceAttributes)", "object.x"),
			`authorizers[0].matchConditions[0].expression: Invalid value: "object.x": compilation failed: ERROR: <input>:1:1: undeclared reference to 'object' (in container '')`},
		{"a condition of another type", with("has(request.resourceAttributes)", "request.user"), `authorizers[0].matchConditions[0].expression: Invalid value: "request.user": must evaluate to bool but got string`},
		{"a condition on a field that does not exist", with("has(request.resourceAttributes)", "request.userName == ''"), "undefined field 'userName'"},
		{"too large", head + "# " + strings.Repeat("x", 3<<20), "is larger than 3145728 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := config.New(config.Options{ConfigFile: write(t, t.TempDir(), "config", c.text)}, parts())
			if (err == nil) != (c.err == "") || !strings.Contains(errText(err), c.err) {
				t.Fatalf("%v\nwant %s", err, c.err)
			}
			if err == nil && !a.Reloads() {
				t.Error("the file is not reloaded")
			}
		})
	}
}

// TestReload: the file is loaded again when it changes; one that is invalid, or lacks a type that was there at the start, changes nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	k, file := write(t, dir, "kubeconfig", nowhere), write(t, dir, "config", rbacOnly)
	now := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	var log bytes.Buffer
	p := parts(func(p *config.Parts) { p.Clock, p.Log = now, slog.New(slog.NewTextHandler(&log, nil)) })
	a, err := config.New(config.Options{ConfigFile: file}, p)
	if err != nil {
		t.Fatal(err)
	}
	count := func(status string) float64 {
		for name, value := range gather(t, p.Metrics.(*prometheus.Registry)) {
			if strings.HasPrefix(name, "apiserver_authorization_config_controller_automatic_reloads_total") && strings.HasSuffix(name, " "+status) {
				return value
			}
		}
		return 0
	}
	at := &authz.Attributes{User: &authn.User{Username: "x"}, Verb: "get", Resource: true, Plural: "pods"}
	decide := func() authz.Decision {
		decision, _, _ := a.Authorizer.Authorize(t.Context(), at)
		return decision
	}
	step := func(name, text string, decision authz.Decision, success, failure float64, logged string) {
		t.Helper()
		if text != "" {
			write(t, dir, "config", text)
		}
		log.Reset()
		now.Step(time.Second)
		config.Check(a)
		if got := decide(); got != decision || count("success") != success || count("failure") != failure || !strings.Contains(log.String(), logged) || logged == "" && log.Len() > 0 {
			t.Errorf("%s: decision %v, %v successes, %v failures, logged %q; want %v, %v, %v, %q", name, got, count("success"), count("failure"), &log, decision, success, failure, logged)
		}
	}
	step("unchanged", "", authz.Allow, 0, 0, "")
	step("a webhook that denies, as nobody listens", hook(k), authz.Deny, 1, 0, "reloaded the authorization configuration")
	step("unchanged", "", authz.Deny, 1, 0, "failed to make webhook authorizer request")
	step("a comment", hook(k)+"# a comment\n", authz.Deny, 1, 0, "failed to make webhook")
	step("no YAML", "{", authz.Deny, 1, 1, "the previous one stays in use")
	step("still no YAML", "", authz.Deny, 1, 1, "failed to make webhook")
	step("an invalid one", hook(k, "failurePolicy: Deny", "failurePolicy: Ignore"), authz.Deny, 1, 2, "authorizers[0].failurePolicy: Unsupported value")
	step("without RBAC", hook(k, "- {type: RBAC, name: rbac}", ""), authz.Deny, 1, 3, "missing required types: [RBAC]")
	step("with Node", hook(k, "- {type: RBAC", "- {type: Node, name: node}\n- {type: RBAC"), authz.Deny, 1, 4, "authorizer type Node is not allowed if it was not enabled at initial server startup")
	step("with a kubeconfig that is none", hook(write(t, dir, "nonsense", "hello")), authz.Deny, 1, 5, "error loading config file")
	step("AlwaysAllow", head+"authorizers: [{type: AlwaysAllow, name: alwaysallow}, {type: RBAC, name: rbac}]", authz.Allow, 2, 5, "reloaded")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	step("no file", "", authz.Allow, 2, 6, "no such file or directory")
	step("still no file", "", authz.Allow, 2, 6, "")
	step("back again", rbacOnly, authz.Allow, 3, 6, "reloaded")
	names := map[string]bool{}
	for name := range gather(t, p.Metrics.(*prometheus.Registry)) {
		names[strings.Fields(name)[0]] = true
	}
	for _, name := range []string{"automatic_reloads_total", "automatic_reload_last_timestamp_seconds", "last_config_info"} {
		if !names["apiserver_authorization_config_controller_"+name] {
			t.Errorf("no metric %s in %v", name, names)
		}
	}
}

// TestRun: the loop looks at the file, and ends with its context.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "config", rbacOnly)
	now := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	a, err := config.New(config.Options{ConfigFile: file}, parts(func(p *config.Parts) { p.Clock = now }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); a.Run(ctx) }()
	at := &authz.Attributes{User: &authn.User{Username: "x"}}
	write(t, dir, "config", head+"authorizers: [{type: AlwaysAllow, name: alwaysallow}, {type: RBAC, name: rbac}]")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		now.Step(time.Second)
		if _, reason, _ := a.Authorizer.Authorize(t.Context(), at); reason == "" { // AlwaysAllow gives no reason
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the file was not reloaded")
		}
	}
	cancel()
	<-done
}

// FuzzConfiguration: no file crashes the server, and none makes a chain without an authorizer.
func FuzzConfiguration(f *testing.F) {
	dir := f.TempDir()
	k := write(f, dir, "kubeconfig", nowhere)
	f.Add(rbacOnly)
	f.Add(strings.ReplaceAll(hook(k), k, "K"))
	f.Add(`{"apiVersion":"apiserver.config.k8s.io/v1beta1","kind":"AuthorizationConfiguration","authorizers":[{"type":"AlwaysDeny","name":"alwaysdeny"}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		authorizers, err := config.Parse([]byte(strings.ReplaceAll(text, "\"K\"", "\""+k+"\"")))
		if err == nil && (len(authorizers) == 0 || slices.Contains(authorizers, "")) {
			t.Errorf("%q has the authorizers %q", text, authorizers)
		}
	})
}
