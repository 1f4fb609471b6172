practices=$source/test/best_practices

image kyverno kyverno
image kyverno-init kyverno-init
for p in background cleanup reports; do image $p-controller $p-controller; done
kubectl create deployment before --image busybox:latest -- sleep 1000 >/dev/null
install
kubectl wait --for=condition=Established crd --all --timeout 60s >/dev/null
for p in admission background cleanup reports; do deployed kyverno kyverno-$p-controller 180; done
wait_for 60 contains validate-policy.kyverno.svc kubectl get validatingwebhookconfigurations -o yaml
say "$(kubectl get crd -o name | wc -l) definitions are served; its admission, background, clean-up and reports controllers run, with its init container; it made its certificates and webhook configurations itself"

ready() { kubectl wait --for=condition=Ready "$1" --timeout 60s >/dev/null || fail "$1 is not ready: $(kubectl get "$1" -o jsonpath='{.status}')"; }
enforced() { sed 's/validationFailureAction: Audit/validationFailureAction: Enforce/' "$practices/$1.yaml" | kubectl apply -f - >/dev/null; ready "clusterpolicy/${1//_/-}"; }
running() { kubectl wait --for=condition=Ready "$@" --timeout 60s >/dev/null; }

# Validation.
enforced disallow_latest_tag
blocked() { ! kubectl apply --dry-run=server -f "$source/test/resources/pod_with_latest_tag.yaml" 2>&1; }
wait_for 30 contains "Using a mutable image tag" blocked
refused 'admission webhook "validate.kyverno.svc-fail" denied the request' kubectl apply -f "$source/test/resources/pod_with_latest_tag.yaml"
refused "validation error: Using a mutable image tag" kubectl apply -f "$source/test/resources/pod_with_latest_tag.yaml"
say "a pod of nginx:latest is refused by webhook: Using a mutable image tag e.g. 'latest' is not allowed"
kubectl delete clusterpolicy disallow-latest-tag >/dev/null
enforced require_certain_labels
unlabelled() { ! kubectl create deployment unlabelled --image busybox --dry-run=server 2>&1; }
wait_for 30 contains autogen-validate-certain-labels unlabelled
say "a Deployment is refused for its pods by a rule that Kyverno made of the one for pods (autogen-validate-certain-labels)"
allowed() { kubectl run free --image busybox:latest -l app.kubernetes.io/name=free --dry-run=server; }
wait_for 30 allowed
kubectl patch clusterpolicy require-certain-labels --type merge -p '{"spec":{"validationFailureAction":"Audit"}}' >/dev/null
tolerated() { kubectl create deployment unlabelled --image busybox --dry-run=server; }
wait_for 30 tolerated
refused 'denied the request' kubectl apply -f - <<'YAML'
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: bad}
spec: {rules: [{name: nothing, match: {any: [{resources: {kinds: [Pod]}}]}, validate: {message: "{{ nosuch.thing }}", pattern: {metadata: {name: "?*"}}}}]}
YAML
say "a policy with an unknown variable is refused by the webhook for policies"

# Reports.
report() { kubectl get policyreports -A -o jsonpath='{range .items[*]}{.scope.kind}/{.scope.name} {.results[*].policy} {.results[*].result}{"\n"}{end}'; }
wait_for 120 contains "Deployment/before require-certain-labels fail" report
say "a PolicyReport says that the Deployment from before breaks the policy that only audits"

# Mutation.
kubectl apply -f "$practices/add_safe_to_evict.yaml" >/dev/null
ready clusterpolicy/add-safe-to-evict
evictable() { kubectl run evictable --image busybox --overrides '{"spec":{"volumes":[{"name":"a","emptyDir":{}}]}}' --dry-run=server -o jsonpath='{.metadata.annotations}'; }
wait_for 30 contains '"cluster-autoscaler.kubernetes.io/safe-to-evict":"true"' evictable
say "a pod with an emptyDir gets an annotation by webhook"

# Generation, kept as the policy says.
sed 's/^  - exclude:/  - skipBackgroundRequests: false\n    exclude:/; s|^      kind: NetworkPolicy|      apiVersion: networking.k8s.io/v1\n&|' "$practices/add_network_policy.yaml" | kubectl apply -f - >/dev/null
ready clusterpolicy/add-networkpolicy
kubectl create namespace generated >/dev/null
wait_for 60 kubectl -n generated get networkpolicy default-deny-ingress
uid=$(kubectl -n generated get networkpolicy default-deny-ingress -o jsonpath='{.metadata.uid}')
kubectl -n generated delete networkpolicy default-deny-ingress >/dev/null
again() { local now; now=$(kubectl -n generated get networkpolicy default-deny-ingress -o jsonpath='{.metadata.uid}') && [ "$now" != "$uid" ]; }
wait_for 60 again
say "a new namespace gets a NetworkPolicy, which comes back when it is deleted"

# What is done to a running pod: CONNECT.
kubectl run shell --image busybox:latest --image-pull-policy IfNotPresent -l app.kubernetes.io/name=shell -- sleep 1000 >/dev/null
running pod/shell
kubectl exec shell -- true
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: no-shells}
spec:
  background: false
  rules:
  - name: no-shells
    match: {any: [{resources: {kinds: [Pod/exec]}}]}
    validate:
      failureAction: Enforce
      message: there are no shells in {{ request.namespace }}
      deny: {conditions: {any: [{key: "{{ request.operation }}", operator: Equals, value: CONNECT}]}}
YAML
ready clusterpolicy/no-shells
shell() { ! kubectl exec shell -- true 2>&1; }
wait_for 30 contains "there are no shells in default" shell
say "\`kubectl exec\` is refused by webhook: there are no shells in default"

# Policies in CEL, which the API server enforces too.
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: replicas}
spec:
  autogen: {validatingAdmissionPolicy: {enabled: true}}
  validationActions: [Deny]
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]}
  validations: [{expression: "object.spec.replicas < 4", message: at most three replicas}]
YAML
wait_for 60 kubectl get validatingadmissionpolicy vpol-replicas
wait_for 60 kubectl get validatingadmissionpolicybinding vpol-replicas-binding
many() { ! kubectl create deployment many --image busybox --replicas 4 --dry-run=server 2>&1; }
wait_for 60 contains "ValidatingAdmissionPolicy 'vpol-replicas' with binding 'vpol-replicas-binding' denied request: at most three replicas" many
say "of a ValidatingPolicy it made a ValidatingAdmissionPolicy and a binding: the API server refuses four replicas"
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: team}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: Object.metadata.labels{team: "blue"}}}'}}]
YAML
team() { kubectl create configmap a --dry-run=server -o jsonpath='{.metadata.labels.team}'; }
wait_for 60 contains blue team
say "a MutatingPolicy labels ConfigMaps by webhook"

# Clean-up.
kubectl create clusterrole cleanup-pods --verb get,list,watch,delete --resource pods >/dev/null
kubectl create clusterrolebinding cleanup-pods --clusterrole cleanup-pods --serviceaccount kyverno:kyverno-cleanup-controller >/dev/null
kubectl delete clusterpolicy no-shells >/dev/null
kubectl label pod shell cleanup.kyverno.io/ttl=5s >/dev/null
gone() { ! kubectl get "$@"; }
wait_for 90 gone pod shell
say "a pod with the label \`cleanup.kyverno.io/ttl=5s\` was deleted"

# Its end.
kubectl -n kyverno scale deployment kyverno-admission-controller --replicas 0 >/dev/null
cleaned() { [ -z "$(kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations -l webhook.kyverno.io/managed-by=kyverno -o name | grep -v -e kyverno-cleanup- -e kyverno-ttl-)" ]; }
wait_for 90 cleaned
kubectl create deployment unlabelled --image busybox >/dev/null
say "scaled to zero its admission controller deletes its webhook configurations, so that nothing waits for it"
