package plugins_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/objects/objectstest"
)

const configHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"

// read has the plugins read a configuration, and returns the error.
func read(t testing.TB, text string, enable ...string) (string, error) {
	o := options
	o.ConfigFile = filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(o.ConfigFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := plugins.New(enable, nil, objectstest.New(), o)
	return o.ConfigFile, err
}

// TestConfigurations reads a configuration of every plugin that takes one.
func TestConfigurations(t *testing.T) {
	const (
		events      = `- {name: EventRateLimit, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Server, qps: 1, burst: %}]}}`
		selectors   = `- {name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: "%"}}}`
		tolerations = `- {name: PodTolerationRestriction, configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{operator: %}]}}`
		estimates   = `- {name: InitialResources, configuration: {apiVersion: initialresources.admission.k8s.io/v1alpha1, kind: Configuration, requests: {percentile: %}}}`
		images      = `- {name: ImagePolicyWebhook, configuration: {imagePolicy: {allowTTL: %}}}`
		security    = `- {name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: %}}}`
		hooks       = `- {name: ValidatingAdmissionWebhook, configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: "%"}}`
	)
	for _, c := range []struct{ plugin, value, err string }{
		{events, "5", ""},
		{events, "0", `plugin "EventRateLimit": plugins[0].configuration: limits[0].burst: Invalid value: 0: must be positive`},
		{selectors, "a=b", ""},
		{selectors, "a", `plugin "PodNodeSelector": plugins[0].configuration: podNodeSelectorPluginConfig.clusterDefaultNodeSelector: Invalid value: "a"`},
		{tolerations, "Exists", ""},
		{tolerations, "Is", `plugin "PodTolerationRestriction": plugins[0].configuration: invalid config: [podtolerationrestriction.default[0].operator`},
		{estimates, "50", ""},
		{estimates, "500", `plugin "InitialResources": plugins[0].configuration: requests.percentile: Invalid value: 500`},
		{images, "50", `plugin "ImagePolicyWebhook": plugins[0].configuration: imagePolicy.kubeConfigFile: Required value`},
		{security, "baseline", ""},
		{security, "low", `plugin "PodSecurity": plugins[0].configuration: defaults.enforce: Invalid value: "low"`},
		{hooks, "", ""},
		{hooks, "a", `plugin "ValidatingAdmissionWebhook": plugins[0].configuration: kubeConfigFile: Invalid value: "a": must be an absolute file path`},
	} {
		text := configHead + strings.ReplaceAll(c.plugin, "%", c.value)
		file, err := read(t, text)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "admission configuration "+file)) {
			t.Errorf("%s: the error is %v, want one of %s that has %s", text, err, file, c.err)
		}
	}
	if len(plugins.Configurable()) != 8 {
		t.Errorf("plugins with a configuration: %v", plugins.Configurable())
	}
}

// Plugins that need a configuration are refused without it, and only if they are on.
func TestNeededConfigurations(t *testing.T) {
	const none = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration"
	if _, err := read(t, none); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"EventRateLimit", "ImagePolicyWebhook"} {
		if _, err := read(t, none, name); err == nil || !strings.Contains(err.Error(), `admission plugin "`+name+`", which --admission-control-config-file does not configure: `) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	for _, name := range []string{"PodNodeSelector", "PodTolerationRestriction", "InitialResources"} {
		if _, err := read(t, none, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzConfiguration reads configurations, inline ones of all plugins.
func FuzzConfiguration(f *testing.F) {
	f.Add(configHead + `- {name: EventRateLimit, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: User, qps: 1, burst: 1, cacheSize: 5}]}}
- {name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: "a=b", ns: "c=d"}}}
- {name: PodTolerationRestriction, configuration: {apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration, default: [{operator: Exists}], whitelist: [{key: a, value: b}]}}
- {name: InitialResources, configuration: {apiVersion: initialresources.admission.k8s.io/v1alpha1, kind: Configuration, requests: {percentile: 1}, limits: {percentile: 2, headroomPercent: 3}, window: 48h}}
- {name: ImagePolicyWebhook, configuration: {imagePolicy: {allowTTL: 1, denyTTL: -1, retryBackoff: 5, defaultAllow: true}}}
- {name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: baseline}, exemptions: {namespaces: [a]}}}
`)
	f.Add("imagePolicy: {allowTTL: 1}\npodNodeSelectorPluginConfig: {a: b}")
	f.Add(`{"apiVersion": "apiserver.k8s.io/v1alpha1", "kind": "AdmissionConfiguration", "plugins": [{"name": "PodSecurity", "path": ""}]}`)
	file := filepath.Join(f.TempDir(), "admission.yaml")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "/") && strings.Contains(text, "dev") {
			t.Skip("it may name a file without end")
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o := options
		o.ConfigFile = file
		if _, err := plugins.New([]string{"PodNodeSelector", "PodTolerationRestriction", "InitialResources"}, nil, objectstest.New(), o); err != nil && err.Error() == "" {
			t.Error("an error says nothing")
		}
	})
}
