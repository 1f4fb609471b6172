package differential

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
)

// Plugins are the admission plugins that testdata/plugins/*.script need besides the default ones.
const Plugins = "AlwaysPullImages,DenyServiceExternalIPs,EventRateLimit,ExtendedResourceToleration,ImagePolicyWebhook,LimitPodHardAntiAffinityTopology,NamespaceAutoProvision," +
	"OwnerReferencesPermissionEnforcement,PodNodeSelector,PodTolerationRestriction"

// admissionConfiguration is the configuration of plugins: in the file itself, and in others that it names.
const admissionConfiguration = `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ImagePolicyWebhook
  path: images.yaml
- name: EventRateLimit
  path: events.yaml
- name: PodNodeSelector
  configuration:
    podNodeSelectorPluginConfig:
      clusterDefaultNodeSelector: pool=general
      placement-narrow: pool=general,disk=ssd
- name: PodTolerationRestriction
  configuration:
    apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1
    kind: Configuration
    default: [{key: team, operator: Equal, value: any, effect: NoSchedule}]
`

const eventsConfiguration = `apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits:
- {type: Server, qps: 1000, burst: 1000}
- {type: Namespace, qps: 1, burst: 3, cacheSize: 100}
`

// StartPolicyServer starts a webhook that reviews images, and writes the configuration of a server that asks it to dir. It returns the path of the file for
// --admission-control-config-file, and the server.
func StartPolicyServer(dir string) (file string, server *httptest.Server, err error) {
	server = httptest.NewTLSServer(http.HandlerFunc(reviewImages))
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}],
		clusters: [{name: c, cluster: {server: "%s/review", certificate-authority: %s/ca.crt}}]}`, server.URL, dir)
	images := fmt.Sprintf("imagePolicy: {kubeConfigFile: %s/kubeconfig, allowTTL: 50, denyTTL: 50, retryBackoff: 1, defaultAllow: false}", dir)
	for name, text := range map[string]string{"ca.crt": string(authority), "kubeconfig": strings.ReplaceAll(kubeconfig, "\t", " "), "images.yaml": images,
		"events.yaml": eventsConfiguration} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	file = filepath.Join(dir, "admission.yaml")
	if err = errors.Join(err, os.WriteFile(file, []byte(admissionConfiguration), 0o600)); err != nil { // the last: who waits for it finds the others
		server.Close()
		return "", nil, err
	}
	return file, server, nil
}

// reviewImages denies images below forbidden/, with a reason, and silent/, without. Pods with a ticket may use them. It fails to review those below broken/.
func reviewImages(w http.ResponseWriter, r *http.Request) {
	review := &imagepolicyv1alpha1.ImageReview{}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(review); err != nil || r.URL.Path != "/review" || r.Header.Get("Authorization") != "Bearer t" {
		http.Error(w, "this is no review", http.StatusBadRequest)
		return
	}
	review.Status.Allowed = true
	for _, c := range review.Spec.Containers {
		switch {
		case strings.HasPrefix(c.Image, "broken/"):
			http.Error(w, "out of order", http.StatusTeapot)
			return
		case review.Spec.Annotations["tickets.image-policy.k8s.io/number"] != "":
		case strings.HasPrefix(c.Image, "forbidden/"):
			review.Status.Allowed, review.Status.Reason = false, fmt.Sprintf("%s is not allowed in %s", c.Image, review.Spec.Namespace)
		case strings.HasPrefix(c.Image, "silent/"):
			review.Status.Allowed = false
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // whoever asked may be gone
}
