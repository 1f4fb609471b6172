demo=$source/demo

enforced() { [ "$(kubectl get "$1" -o json | jq '[.status.byPod[]? | select(.enforced)] | length')" = 4 ]; } # by three webhooks and the audit
installed() { wait_for 60 kubectl get "crd/$1.constraints.gatekeeper.sh"; kubectl wait --for=condition=Established "crd/$1.constraints.gatekeeper.sh" --timeout 30s >/dev/null; }
applied() { wait_for 60 kubectl apply -f "$1"; } # its kind is new: discovery and webhooks may not know it at once

image gatekeeper manager
kubectl create namespace before-gatekeeper >/dev/null
install
deployed gatekeeper-system gatekeeper-controller-manager 240 # the kubelet looks at a Secret that is mounted every minute or so
deployed gatekeeper-system gatekeeper-audit
wait_for 60 contains LS0tLS1CRUdJTi kubectl get validatingwebhookconfiguration gatekeeper-validating-webhook-configuration -o 'jsonpath={.webhooks[1].clientConfig.caBundle}'
say "three pods of the webhook and one of the audit run; it made its own certificate and put the authority into both webhook configurations"

# The demo that it comes with.
kubectl apply -f "$demo/basic/templates/k8srequiredlabels_template.yaml" >/dev/null
installed k8srequiredlabels
say "of the ConstraintTemplate k8srequiredlabels it made a definition, K8sRequiredLabels"
applied "$demo/basic/constraints/all_ns_must_have_gatekeeper.yaml"
wait_for 60 enforced k8srequiredlabels/ns-must-have-gk
why='admission webhook "validation.gatekeeper.sh" denied the request: [ns-must-have-gk] you must provide labels: {"gatekeeper"}'
refused "$why" kubectl apply -f "$demo/basic/bad/bad_ns.yaml"
say "a namespace without a label is refused: \`${why#*request: }\`"
refused "$why" kubectl create namespace bad --dry-run=server
kubectl apply -f "$demo/basic/good/good_ns.yaml" >/dev/null
violations() { kubectl get k8srequiredlabels ns-must-have-gk -o jsonpath='{range .status.violations[*]}{.name}: {.message}{"\n"}{end}'; }
wait_for 90 contains 'before-gatekeeper: you must provide labels: {"gatekeeper"}' violations
say "the audit found the namespace that was there before, among $(kubectl get k8srequiredlabels ns-must-have-gk -o jsonpath='{.status.totalViolations}') (\`status.violations\`)"

# Enforcement actions.
kubectl patch k8srequiredlabels ns-must-have-gk --type merge -p '{"spec":{"enforcementAction":"warn"}}' >/dev/null
wait_for 30 contains 'Warning: [ns-must-have-gk] you must provide labels' kubectl create namespace warned --dry-run=server
say "with \`enforcementAction: warn\` the namespace is made, and kubectl prints the warning"
kubectl patch k8srequiredlabels ns-must-have-gk --type merge -p '{"spec":{"enforcementAction":"dryrun"}}' >/dev/null
silent() { [ "$(kubectl create namespace unseen --dry-run=server -o name 2>&1)" = namespace/unseen ]; }
wait_for 30 silent

# What is wrong in templates and constraints.
refused 'denied the request' kubectl apply -f "$demo/basic/bad/bad_template.yaml"
refused 'spec.match.kinds: Invalid value: "object": spec.match.kinds in body must be of type array' kubectl apply --validate=false -f - <<'YAML'
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: bad-schema}
spec: {match: {kinds: {apiGroups: ["*"], kinds: ["*"]}}, parameters: {labels: [gato]}}
YAML
refused 'not_a_good_operator' kubectl apply -f - <<'YAML'
apiVersion: constraints.gatekeeper.sh/v1beta1
kind: K8sRequiredLabels
metadata: {name: bad-operator}
spec: {match: {labelSelector: {matchExpressions: [{key: foo, operator: not_a_good_operator, values: [a]}]}}, parameters: {labels: [gato]}}
YAML
say "a template whose Rego does not compile, and constraints that break the generated schema, are refused"

# A constraint that looks at other objects.
kubectl apply -f "$demo/basic/sync.yaml" -f "$demo/basic/templates/k8suniquelabel_template.yaml" >/dev/null
installed k8suniquelabel
applied "$demo/basic/constraints/all_ns_gatekeeper_label_unique.yaml"
wait_for 60 enforced k8suniquelabel/ns-gk-label-unique
kubectl apply -f "$demo/basic/good/no_dupe_ns.yaml" >/dev/null
duplicate() { ! kubectl apply --dry-run=server -f "$demo/basic/bad/no_dupe_ns_2.yaml" 2>&1; }
wait_for 30 contains '[ns-gk-label-unique] label gatekeeper has duplicate value not_duplicated' duplicate
refused 'label gatekeeper has duplicate value not_duplicated' kubectl apply -f "$demo/basic/bad/no_dupe_ns_2.yaml"
say "a label that another namespace has is refused: it follows namespaces and pods (Config \`sync\`)"

# Mutation.
sed 's/mycompany.registry.io/mirror.internal/' "$demo/mutation/assignimagedemo.yaml" | kubectl apply -f - >/dev/null
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: mutations.gatekeeper.sh/v1
kind: AssignMetadata
metadata: {name: owner}
spec: {match: {scope: Namespaced, kinds: [{apiGroups: [""], kinds: [ConfigMap]}]}, location: metadata.labels.owner, parameters: {assign: {value: admin}}}
YAML
mutated() { kubectl apply --dry-run=server -o jsonpath='{.spec.containers[0].image}' -f "$demo/mutation/pod.yaml"; }
wait_for 30 contains mirror.internal/nginx mutated
owner() { kubectl create configmap owned --dry-run=server -o jsonpath='{.metadata.labels.owner}'; }
wait_for 30 contains admin owner
say "AssignImage and AssignMetadata change a pod's image and a ConfigMap's labels by webhook"

# Pods of a Deployment, before there are any.
kubectl apply -f "$demo/agilebank/templates/k8scontainterlimits_template.yaml" >/dev/null
installed k8scontainerlimits
applied "$demo/agilebank/constraints/containers_must_be_limited.yaml"
kubectl apply -f "$demo/agilebank/expansion_templates/expand_deployment_expansiontemplate.yaml" >/dev/null
kubectl create namespace production --dry-run=client -o yaml | kubectl label --local -f - gatekeeper=production -o yaml | kubectl apply -f - >/dev/null
unlimited() { ! kubectl apply --dry-run=server -f "$demo/agilebank/bad_resources/deployment_nolimit.yaml" 2>&1; }
wait_for 60 contains 'Implied by' unlimited
say "a Deployment is refused for the pods that it would make (ExpansionTemplate)"

# A ValidatingAdmissionPolicy of a template in CEL.
kubectl delete k8srequiredlabels,k8suniquelabel --all >/dev/null
kubectl delete constrainttemplate k8srequiredlabels >/dev/null
gone() { ! kubectl get "$@"; }
wait_for 60 gone crd/k8srequiredlabels.constraints.gatekeeper.sh
say "with the ConstraintTemplate its definition and constraints were deleted"
cel=$demo/k8s-validating-admission-policy
kubectl apply -f "$cel/k8srequiredlabels_template.yaml" >/dev/null
installed k8srequiredlabels
applied "$cel/owner_must_be_provided.yaml"
ownerless() { ! kubectl create namespace test --dry-run=server 2>&1; }
wait_for 60 contains '[all-must-have-owner] missing required label, requires all of: owner' ownerless
say "a template in CEL, deleted and made again under the same name, refuses by webhook"
kubectl apply -f "$cel/k8srequiredlabels_template_usevap.yaml" >/dev/null
wait_for 60 kubectl get validatingadmissionpolicy gatekeeper-k8srequiredlabels
wait_for 120 kubectl get validatingadmissionpolicybinding gatekeeper-k8srequiredlabels-all-must-have-owner
wait_for 60 contains "ValidatingAdmissionPolicy 'gatekeeper-k8srequiredlabels' with binding 'gatekeeper-k8srequiredlabels-all-must-have-owner' denied request: missing required label, requires all of: owner" ownerless
say "with \`generateVAP\` it made a ValidatingAdmissionPolicy and a binding with the constraint as its parameter: the API server itself refuses"
kubectl create namespace owned --dry-run=client -o yaml | kubectl label --local -f - owner=jan.agilebank.demo -o yaml | kubectl apply -f - >/dev/null
