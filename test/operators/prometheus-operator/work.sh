guides=$source/example/user-guides

config() { kubectl get secret "$1" -o jsonpath="{.data.$2}" | base64 -d | gunzip; }
condition() { kubectl get "$1" -o jsonpath="{.status.conditions[?(@.type==\"$2\")].status}"; }

image prometheus-operator operator
image admission-webhook admission-webhook
service=prometheus-operator-admission-webhook
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$service" -addext "subjectAltName=DNS:$service.default.svc" -keyout "$log/tls.key" -out "$log/tls.crt" 2>/dev/null
kubectl create secret tls admission-webhook-certs --cert "$log/tls.crt" --key "$log/tls.key" >/dev/null
ca=$(base64 -w0 <"$log/tls.crt")
install
kubectl wait --for=condition=Established crd --all --timeout 30s >/dev/null
deployed default prometheus-operator
deployed default prometheus-operator-admission-webhook
say "$(kubectl get crd -o name | wc -l) definitions of up to 790 kB are served; the operator and two pods of its webhook run with the ServiceAccounts and roles of its bundle"

# A Prometheus, and what it is to scrape.
kubectl apply -f "$guides/getting-started/example-app-service-monitor.yaml" -f "$guides/getting-started/example-app-service.yaml" >/dev/null
kubectl apply -f "$guides/alerting/prometheus-example-rules.yaml" >/dev/null
sed 's/^  enableAdminAPI.*/  replicas: 2\n  ruleSelector: {}/' "$guides/getting-started/prometheus-service-monitor.yaml" | kubectl apply -f - >/dev/null
wait_for 60 kubectl get statefulset prometheus-prometheus
equal "2 prometheus prometheus-operated" "$(kubectl get statefulset prometheus-prometheus -o jsonpath='{.spec.replicas} {.spec.template.spec.serviceAccountName} {.spec.serviceName}')" "replicas, ServiceAccount and Service of the StatefulSet"
equal "prometheus config-reloader" "$(kubectl get statefulset prometheus-prometheus -o jsonpath='{.spec.template.spec.containers[*].name}')" "containers of the StatefulSet"
equal "400Mi" "$(kubectl get statefulset prometheus-prometheus -o jsonpath='{.spec.template.spec.containers[0].resources.requests.memory}')" "memory that the StatefulSet asks for"
equal "Prometheus/prometheus" "$(kubectl get statefulset prometheus-prometheus -o jsonpath='{.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name}')" "owner of the StatefulSet"
wait_for 30 kubectl get service prometheus-operated
say "a Prometheus object became a StatefulSet of 2 replicas with its containers, ServiceAccount and memory, and the headless Service prometheus-operated"
wait_for 60 contains "job_name: serviceMonitor/default/example-app/0" config prometheus-prometheus 'prometheus\.yaml\.gz'
say "the ServiceMonitor example-app is job \`serviceMonitor/default/example-app/0\` in the configuration in Secret prometheus-prometheus"
wait_for 60 contains ExampleAlert kubectl get configmap prometheus-prometheus-rulefiles-0 -o yaml
say "the PrometheusRule is in ConfigMap prometheus-prometheus-rulefiles-0"
wait_for 60 contains True condition prometheus/prometheus Reconciled
wait_for 60 contains "prometheus-prometheus-0 prometheus-prometheus-1" kubectl get pods -l app.kubernetes.io/name=prometheus -o jsonpath='{.items[*].metadata.name}'
say "its status says Reconciled, and Available $(condition prometheus/prometheus Available): the StatefulSet has made both pods, whose image is not to be had here"

# Changes: by the scale subresource, and of what is selected.
kubectl scale prometheus/prometheus --replicas 2 >/dev/null
wait_for 60 kubectl get statefulset prometheus-prometheus-shard-1
say "\`kubectl scale prometheus\` to 2 shards made a second StatefulSet"
kubectl scale prometheus/prometheus --replicas 1 >/dev/null
gone() { ! kubectl get "$@"; }
wait_for 60 gone statefulset prometheus-prometheus-shard-1
kubectl delete servicemonitor example-app >/dev/null
without() { ! config prometheus-prometheus 'prometheus\.yaml\.gz' | grep -q example-app; }
wait_for 60 without
say "back at 1 shard it was deleted; without the ServiceMonitor its job is gone from the configuration"

# The webhooks, as the guide says: its YAML blocks, with the authority where the guide leaves that to cert-manager.
awk '/^```yaml/ {on = 1; block = ""; next} /^```/ {if (on && block ~ /WebhookConfiguration/) printf "---\n%s", block; on = 0; next} on {block = block $0 "\n"}' "$source/Documentation/platform/webhook.md" |
  sed "s|^\( *\)- clientConfig:|&\n\1    caBundle: $ca|" >"$log/webhooks.yaml"
kubectl apply -f "$log/webhooks.yaml" >/dev/null
rule() { printf 'apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: %s}\nspec: {groups: [{name: a, rules: [{alert: A, expr: "%s", labels: {severity: %s}}]}]}\n' "$@" | kubectl apply -f -; }
refused 'could not parse expression: 1:7: parse error: unclosed left parenthesis' rule bad 'sum(up' high
say "a rule with the expression \`sum(up\` is refused by webhook: could not parse expression: 1:7: parse error: unclosed left parenthesis"
rule good 'sum(up)' 3 >/dev/null
equal 'string 3' "$(kubectl get prometheusrule good -o json | jq -r '.spec.groups[0].rules[0].labels.severity | "\(type) \(.)"')" "label of the rule"
equal true "$(kubectl get prometheusrule good -o jsonpath='{.metadata.annotations.prometheus-operator-validated}')" "annotation by webhook"
say "a rule whose label is a number is changed by webhook into a string, which its schema demands"

# AlertmanagerConfig in two versions, converted by webhook.
kubectl apply --server-side --force-conflicts -f "$source/example/prometheus-operator-crd-full/monitoring.coreos.com_alertmanagerconfigs.yaml" >/dev/null
kubectl patch crd alertmanagerconfigs.monitoring.coreos.com --type merge -p '{"spec":{"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1beta1","v1alpha1"],
  "clientConfig":{"caBundle":"'"$ca"'","service":{"name":"'$service'","namespace":"default","path":"/convert","port":443}}}}}}' >/dev/null
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: monitoring.coreos.com/v1alpha1
kind: AlertmanagerConfig
metadata: {name: converted, labels: {alertmanagerConfig: example}}
spec:
  route: {receiver: "null"}
  receivers: [{name: "null"}]
  muteTimeIntervals: [{name: never, timeIntervals: [{months: ["january"]}]}]
YAML
beta() { kubectl get alertmanagerconfigs.v1beta1.monitoring.coreos.com converted -o jsonpath='{.apiVersion} {.spec.timeIntervals[0].name}'; }
wait_for 30 contains "monitoring.coreos.com/v1beta1 never" beta
say "an AlertmanagerConfig written as v1alpha1 with \`muteTimeIntervals\` is read as v1beta1 with \`timeIntervals\`: converted by webhook"
refused 'receiver "nobody" not found' kubectl apply -f - <<'YAML'
apiVersion: monitoring.coreos.com/v1alpha1
kind: AlertmanagerConfig
metadata: {name: bad}
spec: {route: {receiver: nobody}, receivers: [{name: somebody}]}
YAML
say "an AlertmanagerConfig with a route to a receiver that is not there is refused by webhook"
kubectl apply -f "$guides/alerting/alertmanager-selector-example.yaml" >/dev/null
wait_for 60 kubectl get statefulset alertmanager-example
wait_for 60 contains default/converted config alertmanager-example-generated 'alertmanager\.yaml\.gz'
say "an Alertmanager became a StatefulSet, with the AlertmanagerConfig in its generated Secret"

kubectl delete prometheus prometheus >/dev/null
wait_for 60 gone statefulset prometheus-prometheus
wait_for 60 gone secret prometheus-prometheus
say "with the Prometheus its StatefulSet, configuration and rules were deleted"
