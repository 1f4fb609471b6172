package webhook

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseConfig(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{apiVersion: v1, kind: Config, users: [{name: "*", user: {token: t}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: WebhookAdmissionConfiguration\n"
	for _, c := range []struct {
		text string
		some bool // whether there are credentials
		err  string
	}{
		{"", false, ""},
		{head, false, ""},
		{head + "kubeConfigFile: " + kubeconfig, true, ""},
		{head + "kubeConfigFile: kubeconfig", false, `kubeConfigFile: Invalid value: "kubeconfig": must be an absolute file path`},
		{head + "kubeConfigFile: /nonexistent/kubeconfig", false, "failed to read kubeConfigFile: open /nonexistent/kubeconfig: no such file or directory"},
		{head + "staticManifestsDir: /etc", false, "staticManifestsDir: Forbidden: staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled"},
		{head + "kubeConfig: x", false, `failed to decode the WebhookAdmissionConfiguration: error unmarshaling JSON: while decoding JSON: json: unknown field "kubeConfig"`},
		{"apiVersion: apiserver.config.k8s.io/v1alpha1\nkind: WebhookAdmission", false, `expected a WebhookAdmissionConfiguration of apiserver.config.k8s.io/v1, got kind "WebhookAdmission" of apiVersion "apiserver.config.k8s.io/v1alpha1"`},
		{"{", false, "failed to decode the WebhookAdmissionConfiguration"},
	} {
		credentials, err := ParseConfig([]byte(c.text))
		if (credentials != nil) != c.some || (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%q: %v, %v", c.text, credentials, err)
		}
	}
}
