first=op-$name-1 second=op-$name-2

# deployment NAME REPLICAS [NODE] [TOLERATIONS]: pods that end at once when told to, on the node if one is named.
deployment() {
  local selector=; [ -z "${3:-}" ] || selector="kubernetes.io/hostname: $3"
  kubectl apply -f - >/dev/null <<YAML
apiVersion: apps/v1
kind: Deployment
metadata: {name: $1}
spec:
  replicas: $2
  selector: {matchLabels: {app: $1}}
  template:
    metadata: {labels: {app: $1}}
    spec:
      terminationGracePeriodSeconds: 0
      nodeSelector: {$selector}
      tolerations: [${4:-}]
      containers: [{name: sleep, image: "busybox:latest", imagePullPolicy: IfNotPresent, command: [sleep, "10000"]}]
YAML
  deployed default "$1"
}
nodes() { kubectl get pods -l "app=$1" --field-selector status.phase=Running -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | xargs; }
on() { [ "$(nodes "$1")" = "$2" ]; }
uid() { kubectl get pods -l "app=$1" -o jsonpath='{.items[*].metadata.uid}'; }
events() { kubectl get events -o jsonpath="{range .items[?(@.reason==\"$1\")]}{.involvedObject.name}: {.message}{\"\n\"}{end}"; }

image descheduler descheduler

# What is on the first node when it gets a taint:
deployment web 2
wait_for 30 on web "$first $second"
deployment tolerant 1 "$first" '{key: maintenance, operator: Exists}'
deployment guarded 1 "$first"
kubectl create poddisruptionbudget guarded --selector app=guarded --min-available 1 >/dev/null
kubectl run failed --image busybox:latest --image-pull-policy IfNotPresent --restart Never -- false >/dev/null
wait_for 60 contains Failed kubectl get pod failed -o jsonpath='{.status.phase}'
allowed() { kubectl get poddisruptionbudget guarded -o jsonpath='{.status.currentHealthy} {.status.disruptionsAllowed}'; }
wait_for 30 contains '1 0' allowed
tolerant=$(uid tolerant) guarded=$(uid guarded)
kubectl taint node "$first" maintenance=yes:NoSchedule >/dev/null
install
deployed kube-system descheduler
wait_for 60 on web "$second $second"
wait_for 30 contains "pod eviction from $first node by sigs.k8s.io/descheduler" events RemovePodsViolatingNodeTaints
say "the pod of a Deployment on a node that got a taint was evicted, and runs on the other node (RemovePodsViolatingNodeTaints; so its event says)"
gone() { ! kubectl get "$@"; }
wait_for 30 gone pod failed
say "a pod without an owner that had failed was evicted, which deletes it (RemoveFailedPods)"
printed() { kubectl -n kube-system logs deployment/descheduler --tail -1; }
wait_for 60 contains "Cannot evict pod as it would violate the pod's disruption budget." printed
equal "$guarded" "$(uid guarded)" "pod with a disruption budget"
equal "$tolerant" "$(uid tolerant)" "pod that tolerates the taint"
say "a pod that tolerates the taint stayed, and so did one with a PodDisruptionBudget: Cannot evict pod as it would violate the pod's disruption budget."
kubectl delete poddisruptionbudget guarded >/dev/null
pending() { kubectl get pods -l app=guarded -o jsonpath='{.items[*].status.phase}'; }
wait_for 60 contains Pending pending
say "without the budget it was evicted too; its successor, which wants this very node, is Pending"

# The node comes back.
kubectl taint node "$first" maintenance- >/dev/null
wait_for 60 on guarded "$first"
wait_for 90 on web "$first $second"
wait_for 30 contains "pod eviction from $second node by sigs.k8s.io/descheduler" events RemoveDuplicates
say "when the taint was removed, one of two pods of a Deployment on the same node was evicted and runs on the other node (RemoveDuplicates)"
