# job NAME SECONDS [LABEL]: makes a Job for the queue, as somebody would who knows nothing of suspending.
job() {
  kubectl create -f - >/dev/null <<YAML
apiVersion: batch/v1
kind: Job
metadata: {name: $1, labels: {kueue.x-k8s.io/queue-name: line${3:+, $3}}}
spec:
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers: [{name: work, image: "busybox:latest", imagePullPolicy: IfNotPresent, command: [sleep, "$2"], resources: {requests: {cpu: 100m}}}]
YAML
}
suspended() { kubectl get job "$1" -o jsonpath='{.spec.suspend} {.status.active}'; }
pending() { kubectl get --raw /apis/visibility.kueue.x-k8s.io/v1beta1/clusterqueues/one/pendingworkloads | jq -r '[.items[].metadata.name | split("-")[1]] | join(" ")'; }
used() { kubectl get clusterqueue one -o jsonpath='{.status.flavorsUsage[0].resources[0].total}'; }

image kueue manager
install
kubectl wait --for=condition=Established crd --all --timeout 30s >/dev/null
deployed kueue-system kueue-controller-manager 240
wait_for 60 contains LS0tLS1CRUdJTi kubectl get mutatingwebhookconfiguration kueue-mutating-webhook-configuration -o 'jsonpath={.webhooks[0].clientConfig.caBundle}'
wait_for 60 contains True kubectl get apiservice v1beta1.visibility.kueue.x-k8s.io -o 'jsonpath={.status.conditions[?(@.type=="Available")].status}'
say "$(kubectl get crd -o name | wc -l) definitions are served; it made its own certificate and put the authority into $(kubectl get mutatingwebhookconfiguration,validatingwebhookconfiguration -o json | jq '[.items[].webhooks[] | select(.clientConfig.caBundle)] | length') webhooks; its aggregated API visibility.kueue.x-k8s.io is available"

# A queue with room for one Job at a time.
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: plain}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: one}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups: [{coveredResources: [cpu], flavors: [{name: plain, resources: [{name: cpu, nominalQuota: 150m}]}]}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: line}
spec: {clusterQueue: one}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
YAML
wait_for 60 contains True kubectl get clusterqueue one -o 'jsonpath={.status.conditions[?(@.type=="Active")].status}'
wait_for 60 contains True kubectl get localqueue line -o 'jsonpath={.status.conditions[?(@.type=="Active")].status}'
queue() { printf 'apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: bad}\nspec: {resourceGroups: [{coveredResources: [%s], flavors: [{name: plain, resources: [{name: cpu, %s}]}]}]}\n' "$@" | kubectl apply -f -; }
why='spec.resourceGroups[0].flavors[0].resources[0].nominalQuota: Invalid value: "-1": must be greater than or equal to 0'
refused 'admission webhook "vclusterqueue.kb.io" denied the request' queue cpu 'nominalQuota: "-1"'
refused "$why" queue cpu 'nominalQuota: "-1"'
say "a ClusterQueue with a negative quota is refused by webhook: \`$why\`"
refused 'flavors must have the same number of resources as the coveredResources' queue 'cpu, memory' 'nominalQuota: "1"'
say "one whose flavors do not cover its resources is refused by a rule in CEL of its definition"

# Three Jobs, of which one fits.
kubectl get clusterqueue one -w -o 'jsonpath={.status.flavorsUsage[0].resources[0].total}{"\n"}' >"$log/used" 2>&1 & watch=$!
trap 'kill $watch 2>/dev/null || true' EXIT
for n in first second third; do
  job $n 4
  wait_for 30 kubectl get "workload" -l "kueue.x-k8s.io/job-uid=$(kubectl get job $n -o jsonpath='{.metadata.uid}')"
done
wait_for 30 contains 'false 1' suspended first
equal 'true ' "$(suspended second)" "suspension and active pods of the second Job"
equal 'true ' "$(suspended third)" "suspension and active pods of the third Job"
wait_for 10 contains 'second third' pending
refused 'metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "elsewhere": field is immutable' kubectl label job first kueue.x-k8s.io/queue-name=elsewhere --overwrite
kubectl wait --for=condition=Complete job/first job/second job/third --timeout 120s >/dev/null || fail "not complete: $(kubectl get jobs 2>&1)"
kill $watch; wait $watch 2>/dev/null || true
overlap() { kubectl get jobs -o json | jq '[.items[].status | {from: (.startTime | fromdate), to: (.completionTime | fromdate)}] | sort_by(.from) | [range(1; length) as $i | select(.[$i].from < .[$i-1].to)] | length'; }
equal 0 "$(overlap)" "Jobs that ran at the same time"
equal '0 100m' "$(grep . "$log/used" | sort -u | tr '\n' ' ' | sed 's/ $//')" "values that the used quota had"
say "three Jobs were suspended by webhook, admitted one after the other and are complete; of a quota of 150m never more than 100m was in use; while the first ran, \`pendingworkloads\` of its aggregated API had the second and third, in this order"

# Preemption.
job slow 1000
wait_for 30 contains 'false 1' suspended slow
job quick 2 'kueue.x-k8s.io/priority-class: urgent'
wait_for 60 contains 'true' suspended slow
kubectl wait --for=condition=Complete job/quick --timeout 60s >/dev/null
wait_for 60 contains 'false 1' suspended slow
contains Preempted kubectl get events --field-selector reason=Preempted -o jsonpath='{.items[*].reason}' || fail "no event of the preemption"
say "a Job of a higher WorkloadPriorityClass preempted one that ran, was completed, and then the other ran again"
kubectl delete job slow --wait >/dev/null
wait_for 30 contains 0 used
gone() { [ -z "$(kubectl get workloads -o name | grep slow)" ]; }
wait_for 30 gone
say "with the Job its Workload was deleted and the quota is free again"
