helm=$bin/helm operator=$here/../sample/chart image=skiff.internal/sample:$version
export HELM_CACHE_HOME=$data/helm HELM_CONFIG_HOME=$data/helm HELM_DATA_HOME=$data/helm

helm() { "$helm" --namespace sample "$@"; }
field() { kubectl -n sample get "$1" -o "jsonpath=$2"; } # OBJECT PATH
newest() { helm history "$1" --max 1 -o json | python3 -c 'import json, sys; r = json.load(sys.stdin)[-1]; print(r["revision"], r["status"])'; } # RELEASE: its newest revision and status
gone() { [ -z "$(kubectl -n sample get "$@" -o name --ignore-not-found)" ]; }
site() { # NAME SPEC
  printf '{"apiVersion": "sample.example.com/v1", "kind": "Site", "metadata": {"name": "%s", "namespace": "sample"}, "spec": %s}' "$1" "$2" | kubectl create -f -
}

image sample "$(built sample)/operator"
helm install sample "$operator" --create-namespace --set image="$image" --wait --timeout 180s >"$log/install"
equal "1 deployed" "$(newest sample)" "the first revision"
equal 1 "$(field deployment/sample '{.status.availableReplicas}')" "the replicas after install --wait"
equal "1 1" "$(field job/sample-pre-install '{.status.succeeded}') $(field job/sample-post-install '{.status.succeeded}')" "the Jobs of hooks that succeeded"
[[ ! $(field job/sample-pre-install '{.status.completionTime}') > $(field deployment/sample '{.metadata.creationTimestamp}') ]] || fail "the operator came before the end of the pre-install hook"
gone job/sample-pre-upgrade || fail "the pre-upgrade hook ran at install"
contains "STATUS: deployed" helm status sample
contains sample helm list
say "install --wait: the definition comes first, then the pre-install hook, the operator with its webhooks, and the post-install hook, which asks the operator"
helm test sample --logs --timeout 120s >"$log/test"
grep -q 'Phase: *Succeeded' "$log/test" && grep -A1 'POD LOGS: sample-ready' "$log/test" | grep -qx ok || fail "helm test: $(tail -5 "$log/test")"
say "test: the pod of the chart succeeds, and its log is shown"

helm install blog "$here/site" --set version=v1alpha1 --wait >>"$log/install" 2>&1
kubectl -n sample wait --for condition=Available --timeout 120s site/blog >"$log/wait"
helm upgrade blog "$here/site" --set pages.about\\.html=us >>"$log/install"
equal "hello us" "$(field site/blog '{.spec.pages.index\.html} {.spec.pages.about\.html}')" "the Site after its chart went from v1alpha1 to v1"
say "a chart of a Site is installed in v1alpha1 and upgraded to v1"

# Helm leaves definitions alone that are there.
sed 's/maximum: 10}/maximum: 3}/' "$operator/crds/sites.yaml" | kubectl apply -f - >>"$log/install" 2>&1
helm upgrade sample "$operator" --reuse-values --set replicas=2 --wait --timeout 180s >>"$log/install"
equal "2 deployed" "$(newest sample)" "the revision after an upgrade"
equal 2 "$(field deployment/sample '{.status.availableReplicas}')" "the replicas after upgrade --wait"
equal 1 "$(field job/sample-pre-upgrade '{.status.succeeded}')" "the pre-upgrade hook"
wait_for 30 refused 'spec.replicas in body should be less than or equal to 3' site many '{"replicas": 5}'
equal Webhook "$(kubectl get crd sites.sample.example.com -o 'jsonpath={.spec.conversion.strategy}')" "the conversion after kubectl apply of the definition"
equal hello "$(field sites.v1alpha1.sample.example.com/blog '{.spec.page}')" "the Site in v1alpha1 after the upgrade"
say "upgrade --wait: the new value holds, the pre-upgrade hook ran, and the changed definition, applied by kubectl, counts; what the operator wrote into it and into the webhooks stays"

helm rollback sample 1 --wait --timeout 180s >>"$log/install"
equal "3 deployed" "$(newest sample)" "the revision after a rollback"
equal 1 "$(field deployment/sample '{.spec.replicas}')" "the replicas after a rollback"
contains "Rollback to 1" helm history sample
say "rollback and history"

# What the webhook refuses.
message='admission webhook "validate.sample.example.com" denied the request'
refused "$message" helm install bad "$here/site" --set pages.a/b=x
equal "1 failed" "$(newest bad)" "a release that the webhook refused"
helm uninstall bad >>"$log/install"
refused "$message" helm install bad "$here/site" --set pages.a/b=x --atomic --timeout 60s
[[ $(helm list --all --short) != *bad* ]] || fail "install --atomic left a release behind"
gone site/bad || fail "install --atomic left a Site behind"
refused 'may not change' helm upgrade blog "$here/site" --set port=9090 --atomic --timeout 60s
equal "4 deployed" "$(newest blog)" "the revision after upgrade --atomic was refused"
equal "8080 us" "$(field site/blog '{.spec.port} {.spec.pages.about\.html}')" "the Site after upgrade --atomic was refused"
say "a release that the webhook refuses fails with its message; with --atomic nothing of it stays, or the release before it is back"

helm uninstall blog --wait >>"$log/install"
gone site/blog || fail "the Site is there after its release was uninstalled"
helm uninstall sample --wait --timeout 120s >>"$log/install"
gone deployment/sample || fail "the operator is there after uninstall --wait"
equal 1 "$(field job/sample-pre-delete '{.status.succeeded}')" "the pre-delete hook"
equal "" "$(kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations,clusterroles sample -o name --ignore-not-found)" "what is left of the release"
equal "" "$(helm list --all --short)" "the releases"
equal sites.sample.example.com "$(kubectl get crd sites.sample.example.com -o 'jsonpath={.metadata.name}')" "the definition, which Helm keeps"
say "uninstall --wait: the pre-delete hook runs, all is gone but the definition, and no release is left"
