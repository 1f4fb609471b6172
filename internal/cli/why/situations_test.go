package why

import (
	"encoding/json"
	"encoding/pem"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// situations make the real thing for each cause, in a namespace that is named after it, and have the text by which it is explained.
var situations = map[string]func(*fixture){
	"an initializer has not acted": func(f *fixture) {
		f.apply(`{apiVersion: admissionregistration.k8s.io/v1alpha1, kind: InitializerConfiguration, metadata: {name: slow-initializer},
			initializers: [{name: slow.example.com, rules: [{apiGroups: [""], apiVersions: [v1], resources: [podtemplates]}]}]}`)
		err := f.api.CoreV1().RESTClient().Post().AbsPath("/api/v1/namespaces/"+f.namespace+"/configmaps").Param("includeUninitialized", "true").SetHeader("Content-Type", "application/json").
			Body([]byte(`{"metadata":{"name":"settings","initializers":{"pending":[{"name":"slow.example.com"},{"name":"other.example.com"}]}}}`)).Do(f.Context()).Error()
		if err != nil {
			f.Fatal(err)
		}
		f.says("configmap/settings", `
It is not initialized, so that nobody sees it: it waits for the initializer "slow.example.com" and was created AGO.
  then it waits for other.example.com
  the InitializerConfiguration slow-initializer names the initializer: new objects wait for it, too
  who may initialize the resource can remove the initializer from metadata.initializers.pending; kubectl delete removes the object`)
	},
	"a webhook refused": func(f *fixture) {
		f.hook("Validating", "/deny", "Fail", "pods")
		f.refusedPod()
		f.says("pod/web", `
The validating webhook "hook.example.com" (configuration "a-webhook-refused") refused pod/web: images must be signed.
  AGO, for apitest as kubernetes-admin`)
		f.deployment()
		const pods = `
The validating webhook "hook.example.com" (configuration "a-webhook-refused") refused pod/web-HASH-*: images must be signed.
  AGO, for replicaset-controller as system:serviceaccount:kube-system:replicaset-controller`
		f.says("deploy/web", pods)
		f.says("rs/"+f.replicaSet(), pods)
	},
	"a webhook failed and refused": func(f *fixture) {
		f.hook("Mutating", "/closed", "Fail", "pods")
		f.refusedPod()
		f.deployment()
		f.says("deployment/web", `
The mutating webhook "hook.example.com" (configuration "a-webhook-failed-and-refused") could not be reached (connection refused); its failure policy Fail refused pod/web-HASH-*.
  AGO, for replicaset-controller as system:serviceaccount:kube-system:replicaset-controller
  the error: failed calling webhook "hook.example.com": failed to call webhook: Post "https://ADDRESS/closed": dial tcp ADDRESS: connect: connection refused`)
		f.delete("MutatingWebhookConfiguration", f.namespace)
		f.says("deployment/web", `deployment.apps/web in a-webhook-failed-and-refused: nothing is known that refused it, failed it or keeps it waiting; skiff journey deployment/web shows what happened.`)
	},
	"a policy refused": func(f *fixture) {
		f.policy("Validating", `validations: [{expression: "object.metadata.name == 'api'", message: "only api"}]`, `, validationActions: [Deny]`)
		f.refusedPod()
		f.says("pod/web", `
The validating policy "a-policy-refused-policy" (binding "a-policy-refused-binding") refused pod/web: only api.
  AGO, for apitest as kubernetes-admin`)
	},
	"a policy failed and refused": func(f *fixture) {
		f.policy("Validating", `validations: [{expression: "object.metadata.annotations['team'] == 'web'"}]`, `, validationActions: [Deny]`)
		f.refusedPod()
		f.says("pod/web", `
The validating policy "a-policy-failed-and-refused-policy" (binding "a-policy-failed-and-refused-binding") could not be evaluated (expression 'object.metadata.annotations['team'] == 'web'' resulted in error: no such key: annotations); its failure policy Fail refused pod/web.
  AGO, for apitest as kubernetes-admin
  the error: expression 'object.metadata.annotations['team'] == 'web'' resulted in error: no such key: annotations`)
	},
	"a webhook failed and was ignored": func(f *fixture) {
		f.hook("Mutating", "/closed", "Ignore", "configmaps")
		f.until("the webhook is called", func() bool {
			_ = f.api.CoreV1().ConfigMaps(f.namespace).Delete(f.Context(), "settings", metav1.DeleteOptions{})
			f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: ` + f.namespace + `}}`)
			tree, _, err := f.client.Journey(f.Context(), "configmap", f.namespace, "settings")
			return err == nil && len(tree.Failures) > 0
		})
		f.says("configmap/settings", `
The mutating webhook "hook.example.com" (configuration "a-webhook-failed-and-was-ignored") could not be reached (connection refused); its failure policy Ignore let configmap/settings be created without it.
  AGO, for kubectl as kubernetes-admin
  the error: failed calling webhook "hook.example.com": failed to call webhook: Post "https://ADDRESS/closed": dial tcp ADDRESS: connect: connection refused`)
	},
	"a policy failed and was ignored": func(f *fixture) {
		f.policy("Validating", `failurePolicy: Ignore, validations: [{expression: "object.metadata.annotations['team'] == 'web'"}]`, `, validationActions: [Deny]`)
		f.until("the policy is evaluated", func() bool {
			_ = f.api.CoreV1().Pods(f.namespace).Delete(f.Context(), "web", *metav1.NewDeleteOptions(0))
			if err := f.pod("web"); err != nil {
				return false
			}
			tree, _, err := f.client.Journey(f.Context(), "pod", f.namespace, "web")
			return err == nil && len(tree.Failures) > 0
		})
		f.contains("pod/web", `
The validating policy "a-policy-failed-and-was-ignored-policy" (binding "a-policy-failed-and-was-ignored-binding") could not be evaluated (expression 'object.metadata.annotations['team'] == 'web'' resulted in error: no such key: annotations); its failure policy Ignore let pod/web be created without it.
  AGO, for apitest as kubernetes-admin
`)
	},
	"a conversion webhook fails": func(f *fixture) {
		f.crd("widgets", "Widget", "/closed", `{type: object}`)
		f.until("a widget is created", func() bool {
			return f.try(`{apiVersion: example.com/v1, kind: Widget, metadata: {name: a, namespace: `+f.namespace+`}}`) == nil
		})
		if body, err := f.api.CoreV1().RESTClient().Get().AbsPath("/apis/example.com/v2/widgets").DoRaw(f.Context()); err == nil {
			f.Errorf("widgets are converted: %s", body)
		}
		f.says("crd/widgets.example.com", `
The conversion webhook of widgets.example.com could not be reached (connection refused): objects cannot be converted from v1 to v2.
  AGO
  the error: conversion webhook for example.com/v1, Kind=Widget failed: Post "https://ADDRESS/closed": dial tcp ADDRESS: connect: connection refused`)
	},
	"an aggregated API is unavailable": func(f *fixture) {
		f.aggregate("v1.metrics.example.com")
		f.says("apiservice/v1.metrics.example.com", `
The aggregated API v1.metrics.example.com is unavailable (ServiceNotFound): service/metrics in "an-aggregated-api-is-unavailable" is not present.
  it is served by the Service metrics in an-aggregated-api-is-unavailable; unavailable since AGO`)
	},
	"a namespace waits for an aggregated API": func(f *fixture) {
		f.aggregate("v1.queues.example.com")
		f.apply(`{apiVersion: v1, kind: Namespace, metadata: {name: old}}`)
		f.says("apiservice/v1.queues.example.com", `
The aggregated API v1.queues.example.com is unavailable (ServiceNotFound): service/metrics in "a-namespace-waits-for-an-aggregated-api" is not present.
  it is served by the Service metrics in a-namespace-waits-for-an-aggregated-api; unavailable since AGO`)
		if err := f.api.CoreV1().Namespaces().Delete(f.Context(), "old", metav1.DeleteOptions{}); err != nil {
			f.Fatal(err)
		}
		f.says("namespace/old", `
Namespace old cannot be removed as long as the aggregated API v1.queues.example.com is unavailable: nobody knows what the namespace has of it.
  the API: service/metrics in "a-namespace-waits-for-an-aggregated-api" is not present (ServiceNotFound); it is served by the Service metrics in a-namespace-waits-for-an-aggregated-api
  the namespace: Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: queues.example.com/v1: stale GroupVersion discovery: queues.example.com/v1 (DiscoveryFailed)
  kubectl delete apiservice v1.queues.example.com lets the namespace go, if the API is not to come back`)
	},
	"a webhook or policy changed it": func(f *fixture) {
		f.hook("Mutating", "/patch", "Fail", "configmaps")
		f.until("the webhook is called", func() bool {
			_ = f.api.CoreV1().ConfigMaps(f.namespace).Delete(f.Context(), "settings", metav1.DeleteOptions{})
			f.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: ` + f.namespace + `}}`)
			m, err := f.api.CoreV1().ConfigMaps(f.namespace).Get(f.Context(), "settings", metav1.GetOptions{})
			return err == nil && m.Annotations["sidecar"] == "yes"
		})
		f.says("configmap/settings", `
The mutating webhook "hook.example.com" (configuration "a-webhook-or-policy-changed-it") changed it when it was created.
  AGO, in TOOK`)
	},
	"an Event tells of a refusal": func(f *fixture) {
		forgetful := newFixture(f.T, 8).in(f.T, f.namespace) // it remembers one failure
		forgetful.hook("Validating", "/deny", "Fail", "pods")
		forgetful.refusedPod()
		forgetful.deployment()
		rs := forgetful.replicaSet()
		forgetful.until("there is an Event", func() bool {
			events, err := forgetful.api.CoreV1().Events(f.namespace).List(f.Context(), metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
			return err == nil && len(events.Items) > 0
		})
		want := `
The webhook "hook.example.com" refused pod/web-HASH-*: images must be signed.
  AGO, as an Event of replicaset/web-HASH says (FailedCreate)`
		for _, object := range []string{"deployment/web", "rs/" + rs} {
			forgetful.before = forgetful.refusedPod // which displaces what is remembered of the ReplicaSet's pods
			forgetful.says(object, want)
		}
	},
}

// hook registers a webhook for a resource in the namespace: its path says what it does.
func (f *fixture) hook(kind, path, failurePolicy, resource string) {
	f.Helper()
	f.apply(`{apiVersion: admissionregistration.k8s.io/v1, kind: ` + kind + `WebhookConfiguration, metadata: {name: ` + f.namespace + `}, webhooks: [{
		name: hook.example.com, sideEffects: None, admissionReviewVersions: [v1], failurePolicy: ` + failurePolicy + `,
		clientConfig: {url: "` + f.url(path) + `", caBundle: ` + f.caBundle() + `},
		namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + f.namespace + `}},
		rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [` + resource + `]}]}]}`)
}

// policy registers a policy with a binding for pods in the namespace.
func (f *fixture) policy(kind, spec string, actions string) {
	f.Helper()
	f.apply(`{apiVersion: admissionregistration.k8s.io/v1, kind: ` + kind + `AdmissionPolicy, metadata: {name: ` + f.namespace + `-policy}, spec: {` + spec + `,
		matchConstraints: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + f.namespace + `}}, resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}}}`)
	f.apply(`{apiVersion: admissionregistration.k8s.io/v1, kind: ` + kind + `AdmissionPolicyBinding, metadata: {name: ` + f.namespace + `-binding}, spec: {policyName: ` + f.namespace + `-policy` + actions + `}}`)
}

// crd defines a resource in two versions, of which objects are converted by a webhook.
func (f *fixture) crd(plural, kind, path, schema string) {
	f.Helper()
	f.apply(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: ` + plural + `.example.com}, spec: {group: example.com, scope: Namespaced,
		names: {plural: ` + plural + `, singular: ` + plural[:len(plural)-1] + `, kind: ` + kind + `, listKind: ` + kind + `List}, conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1],
		clientConfig: {url: "` + f.url(path) + `", caBundle: ` + f.caBundle() + `}}}, versions: [
		{name: v1, served: true, storage: true, schema: {openAPIV3Schema: ` + schema + `}}, {name: v2, served: true, storage: false, schema: {openAPIV3Schema: ` + schema + `}}]}}`)
}

// caBundle returns the authority of the webhooks as JSON has it.
func (f *fixture) caBundle() string {
	encoded, err := json.Marshal(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.hooks.Certificate().Raw}))
	if err != nil {
		f.Fatal(err)
	}
	return string(encoded)
}

// aggregate registers an API whose Service does not exist, until the test ends.
func (f *fixture) aggregate(name string) {
	f.Helper()
	group := name[len("v1."):]
	f.apply(`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: ` + name + `}, spec: {group: ` + group + `, version: v1, groupPriorityMinimum: 100, versionPriority: 100,
		insecureSkipTLSVerify: true, service: {namespace: ` + f.namespace + `, name: metrics}}}`)
	f.Cleanup(func() { f.delete("APIService", name) })
}
