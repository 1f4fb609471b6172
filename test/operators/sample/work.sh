old=sites.v1alpha1.sample.example.com new=sites.v1.sample.example.com

site() { # VERSION NAME SPEC: a Site, to be applied
  printf '{"apiVersion": "sample.example.com/%s", "kind": "Site", "metadata": {"name": "%s"}, "spec": %s}' "$1" "$2" "$3"
}
create() { site "$@" | kubectl create -f -; }
field() { kubectl get "$1" "$2" -o "jsonpath=$3"; } # RESOURCE NAME PATH
shows() { contains "$3" kubectl exec "deployment/$1" -- wget -q -O - "http://127.0.0.1:$2/"; } # NAME PORT TEXT: the first page of a site
listed() { contains "$1" kubectl -n sample get configmap sample -o 'jsonpath={.data}'; }
none() { [ -z "$(kubectl get "$@" -o name --ignore-not-found)" ]; }

image sample operator
kubectl create namespace sample
{ cat chart/crds/*; for file in rbac operator webhooks; do echo ---; cat "chart/templates/$file.yaml"; done; } |
  sed "s/{{ .Release.Name }}/sample/g; s/{{ .Release.Namespace }}/sample/g; s/{{ .Values.replicas }}/1/; s|{{ .Values.image }}|skiff.internal/sample:$version|" |
  kubectl -n sample apply -f - >"$log/install"
deployed sample sample
wait_for 30 contains Webhook kubectl get crd sites.sample.example.com -o 'jsonpath={.spec.conversion.strategy}'
say "the operator, applied by kubectl, makes its certificate, has the API server trust it, and takes its lease"

# Two versions.
watched() { kubectl get "$1" --watch --output-watch-events -o json >"$log/watched.$1" & watchers="${watchers:-} $!"; } # RESOURCE
watched $old; watched $new
trap 'kill $watchers 2>/dev/null || true' EXIT
warning=$(create v1alpha1 first '{"page": "hello", "listen": ":8081"}' 2>&1) || fail "$warning"
[[ $warning == *"sample.example.com/v1alpha1 Site is deprecated"* ]] || fail "no warning that v1alpha1 is deprecated: $warning"
equal "hello 8081 1 busybox:latest" "$(field $new first '{.spec.pages.index\.html} {.spec.port} {.spec.replicas} {.spec.image}')" "the v1alpha1 object in v1"
equal "hello :8081 1" "$(field $old first '{.spec.page} {.spec.listen} {.spec.replicas}')" "the v1alpha1 object in v1alpha1"
create v1 second '{"pages": {"index.html": "one", "about.html": "two"}, "port": 8082}'
equal 'one :8082 {"about.html":"two"}' "$(field $old second '{.spec.page} {.spec.listen} {.metadata.annotations.sample\.example\.com/other-pages}')" "the v1 object in v1alpha1"
kubectl patch $old second --type merge -p '{"spec": {"page": "three"}}'
equal 'three two' "$(field $new second '{.spec.pages.index\.html} {.spec.pages.about\.html}')" "the v1 object after a patch in v1alpha1"
say "a Site made in v1alpha1 is read in v1, one made in v1 is changed in v1alpha1, and nothing is lost"
equal "first second" "$(kubectl get $old -o 'jsonpath={.items[*].metadata.name}')" "the list in v1alpha1"
equal "8081 8082" "$(kubectl get $new -o 'jsonpath={.items[*].spec.port}')" "the list in v1"
equal "second" "$(kubectl get $new --field-selector spec.port=8082 -o 'jsonpath={.items[*].metadata.name}')" "the list of a field in v1"
equal "first" "$(kubectl get $old --field-selector spec.listen=:8081 -o 'jsonpath={.items[*].metadata.name}')" "the list of a field in v1alpha1"
wait_for 20 grep -q '"listen":":8082"' "$log/watched.$old"
wait_for 20 grep -q '"port":8081' "$log/watched.$new"
! grep -q '"port"' "$log/watched.$old" || fail "the watch in v1alpha1 showed fields of v1"
say "both versions are listed, selected by fields and watched"

# Webhooks.
equal "It works." "$(site v1 default '{}' | kubectl create --dry-run=server -f - -o 'jsonpath={.spec.pages.index\.html}')" "the default page"
refused 'The Site "third" is invalid' create v1 third '{"pages": {"a/b": "x"}}'
refused 'spec.pages[index.html]: Required value: a site has a first page' create v1 third '{"pages": {"a/b": "x"}}'
refused 'spec.port: Invalid value: 9090: may not change' kubectl patch $new first --type merge -p '{"spec": {"port": 9090}}'
refused 'spec.port: Invalid value: 9090: may not change' kubectl patch $old first --type merge -p '{"spec": {"listen": ":9090"}}'
refused 'conversion webhook for sample.example.com/v1alpha1, Kind=Site failed: spec.listen of site third must be a colon and a port, not "everywhere"' \
  create v1alpha1 third '{"listen": "everywhere"}'
refused 'should be less than or equal to 10' create v1 third '{"replicas": 11}'
contains "Warning: spec.replicas is 0: nothing shows the site" create v1 third '{"replicas": 0}'
kubectl label $new third protected=true
refused 'admission webhook "validate.sample.example.com" denied the request' kubectl delete $old third
kubectl label $new third protected-
kubectl delete $new third
say "its webhooks set defaults, warn, and refuse in either version with their own message"

# Reconciling.
kubectl wait --for condition=Available --timeout 120s $new/first $new/second >"$log/wait"
wait_for 20 shows first 8081 hello
equal "$(field $new first '{.metadata.generation} {.metadata.generation}')" "$(field $new first '{.status.observedGeneration} {.status.conditions[0].observedGeneration}')" "the observed generation"
equal "Site first true" "$(field deployment first '{.metadata.ownerReferences[0].kind} {.metadata.ownerReferences[0].name} {.metadata.ownerReferences[0].controller}')" "the owner of the Deployment"
wait_for 20 listed '"default.second":"2 pages on port 8082"'
kubectl patch $old first --type merge -p '{"spec": {"page": "changed"}}'
wait_for 90 shows first 8081 changed
kubectl scale $new second --replicas 2
wait_for 90 contains 2 field $new second '{.status.readyReplicas}'
kubectl delete deployment first
kubectl wait --for create --timeout 30s deployment/first >"$log/wait"
say "a Site becomes a ConfigMap and a Deployment whose pods show it; changes, scaling and a deleted Deployment are followed; status has conditions and the observed generation"
kubectl delete $old first --timeout 60s
! listed default.first || fail "the deleted Site is still in the list of the operator"
wait_for 60 none deployment/first
wait_for 60 none configmap/first
say "a deleted Site goes through its finalizer, and what it owned goes with it"

# The operator dies, is away, and comes back.
kubectl -n sample delete pod -l app=sample --grace-period 0 --force
create_fourth() { create v1alpha1 fourth '{"page": "four", "listen": ":8084"}'; }
wait_for 90 create_fourth
kubectl wait --for condition=Available --timeout 120s $new/fourth >"$log/wait"
say "an operator that is killed is replaced, and goes on"
kubectl -n sample scale deployment sample --replicas 0
wait_for 60 none pod -n sample -l app=sample
wait_for 30 eval '[ -z "$(kubectl -n sample get endpointslices -l kubernetes.io/service-name=sample -o "jsonpath={.items[*].endpoints[*].addresses}")" ]'
equal "second fourth" "$(kubectl get $new --sort-by .metadata.creationTimestamp -o 'jsonpath={.items[*].metadata.name}')" "the list in v1 while the operator is away"
refused 'failed calling webhook "default.sample.example.com"' create v1 fifth '{}'
kubectl patch $new fourth --subresource status --type merge -p '{"status": {"readyReplicas": 7}}'
refused 'conversion webhook for sample.example.com/v1, Kind=Site failed' kubectl get $old fourth
refused 'conversion webhook for sample.example.com/v1, Kind=Site failed' kubectl get $old
equal 7 "$(field $new fourth '{.status.readyReplicas}')" "the status in v1"
kubectl -n sample scale deployment sample --replicas 1
wait_for 90 contains fourth kubectl get $old
wait_for 60 contains 1 field $new fourth '{.status.readyReplicas}'
say "while it is away Sites are read in the version in which they are stored, and not in the other one"
kubectl delete crd sites.sample.example.com --timeout 120s
! listed default. || fail "Sites are still in the list of the operator"
wait_for 60 none deployments
say "deleting the definition ends all Sites through their finalizer"
