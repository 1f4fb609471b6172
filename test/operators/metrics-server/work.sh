available() { kubectl get apiservice v1beta1.metrics.k8s.io -o jsonpath="{.status.conditions[?(@.type==\"Available\")].$1}"; }
millicores() { kubectl top pod "$1" --no-headers | awk '{print $2 + 0}'; }
mebibytes() { kubectl top pod "$1" --no-headers | awk '{print $3 + 0}'; }
between() { local got; got=$("${@:3}") && [ -n "$got" ] && [ "$got" -ge "$1" ] && [ "$got" -le "$2" ]; }

image metrics-server metrics-server
kubectl apply -f - >/dev/null <<'YAML'
apiVersion: v1
kind: Pod
metadata: {name: busy, labels: {app: load}}
spec:
  containers:
  - name: busy
    image: busybox:latest
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "head -c 50331648 /dev/zero >/dev/shm/held; while :; do :; done"]
    resources: {limits: {cpu: 200m, memory: 128Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: idle, labels: {app: load}}
spec: {containers: [{name: idle, image: "busybox:latest", imagePullPolicy: IfNotPresent, command: [sleep, "10000"]}]}
YAML
install
wait_for 30 contains False available status
refused "Metrics API not available" kubectl top nodes
deployed kube-system metrics-server
wait_for 60 contains True available status
equal "all checks passed" "$(available message)" "message of the APIService"
say "APIService v1beta1.metrics.k8s.io is available (all checks passed); its pod runs as user 1000 with a read-only root and trusts the kubelets' certificates as they are"

# Numbers.
wait_for 60 between 20 260 millicores busy
wait_for 60 between 48 90 mebibytes busy
wait_for 60 between 0 10 millicores idle
say "\`kubectl top pods\`: $(kubectl top pods --no-headers | awk '{print sep $1 " has " $2 " and " $3; sep = ", "}' ORS=); busy has a limit of 200m and holds 48Mi"
both() { [ "$(kubectl top nodes --no-headers | grep -c '[0-9]m *[0-9]*% *[0-9]*Mi *[0-9]*%')" = 2 ]; }
wait_for 60 both
say "\`kubectl top nodes\`: $(kubectl top nodes --no-headers | awk '{print sep $1 " has " $2 " and " $4; sep = ", "}' ORS=)"
equal "busy idle" "$(kubectl get podmetrics -l app=load -o jsonpath='{.items[*].metadata.name}')" "PodMetrics that a label selects"
explained() { kubectl explain podmetrics.containers.usage; }
wait_for 30 contains "The memory usage is the memory working set." explained
say "\`kubectl get podmetrics -l\` and \`kubectl explain podmetrics\` answer"

# Who asks is known there, and what they may do.
refused 'pods.metrics.k8s.io is forbidden: User "ann" cannot list resource "pods" in API group "metrics.k8s.io" in the namespace "default"' kubectl top pods --as ann
kubectl create rolebinding ann --clusterrole view --user ann >/dev/null
wait_for 30 contains busy kubectl top pods --as ann
say "user ann is refused until she has the role view, which the program's own ClusterRole is part of"

# Without it.
resources=$(kubectl api-resources -o name | wc -l)
kubectl -n kube-system scale deployment metrics-server --replicas 0 >/dev/null
wait_for 60 contains False available status
kubectl create namespace ends >/dev/null
kubectl -n ends create configmap inside >/dev/null
kubectl delete namespace ends --timeout 30s >/dev/null
refused "the server is currently unable to handle the request" kubectl get --raw /apis/metrics.k8s.io/v1beta1/nodes
discovered() { [ "$(kubectl api-resources -o name 2>/dev/null | wc -l)" -ge $((resources - 2)) ]; }
discovered || fail "api-resources without it: $(kubectl api-resources 2>&1 | tail -3)"
say "scaled to zero: $(available message); namespaces still end, everything else is still discovered, and a request is answered 503"
kubectl -n kube-system scale deployment metrics-server --replicas 1 >/dev/null
deployed kube-system metrics-server
wait_for 60 contains True available status
wait_for 60 between 20 260 millicores busy
say "scaled to one again it serves numbers again"
