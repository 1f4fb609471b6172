#!/bin/bash
# What HorizontalPodAutoscalers cost: autoscalers.sh [N], 1,000 unless told otherwise. Runs N Deployments of two pods on hollow nodes, and says what part of a
# core the whole of skiff takes at rest without autoscalers, and with one of each Deployment, and how long it takes until pods that use too much get another.
set -euo pipefail
cd "$(dirname "$0")/../.."
n=${1:-1000} rest=${REST_SECONDS:-60}
skiff=${SKIFF:-bin/skiff}
data=$(mktemp -d /tmp/skiff-autoscalers.XXXXXX)
trap '"$skiff" down --purge --name autoscalers --data-dir "$data/cluster" >/dev/null 2>&1; rm -rf "$data"' EXIT
port=$((20000 + RANDOM % 10000))
"$skiff" up --no-node --hollow-nodes $((n / 40 + 1)) --name autoscalers --data-dir "$data/cluster" --port $port >/dev/null
pid=$(cat "$data/cluster/skiff.pid")
kubectl() { "$skiff" kubectl --kubeconfig "$data/cluster/admin.kubeconfig" "$@"; }
ticks() { awk '{print $14 + $15}' /proc/$pid/stat; }
# measure NAME: what part of a core the process takes.
measure() { local t; t=$(ticks); sleep "$rest"; awk "BEGIN{printf \"$1 %.2f %% of a core\n\", ($(ticks) - $t) / $rest}"; }
wait_for() { local i; for i in $(seq 300); do [ "$(eval "$1")" != "$2" ] || return 0; sleep 1; done; echo "autoscalers.sh: not in time: $1 is not $2" >&2; exit 1; }

python3 - "$n" >"$data/deployments" <<'PY'
import json, sys
for i in range(int(sys.argv[1])):
    app = {"app": f"web-{i}"}
    print(json.dumps({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"web-{i}"}, "spec": {"replicas": 2, "selector": {"matchLabels": app}, "template": {
        "metadata": {"labels": app, "annotations": {"hollow.skiff/cpu": "50m"}},
        "spec": {"containers": [{"name": "c", "image": "nginx", "resources": {"requests": {"cpu": "100m"}}}]}}}}))
PY
python3 - "$n" >"$data/autoscalers" <<'PY'
import json, sys
for i in range(int(sys.argv[1])):
    print(json.dumps({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": f"web-{i}"}, "spec": {"minReplicas": 2, "maxReplicas": 5,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"web-{i}"},
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}))
PY
kubectl create -f "$data/deployments" >/dev/null
wait_for 'kubectl get pods --field-selector status.phase=Running --no-headers 2>/dev/null | wc -l' $((2 * n))
sleep 30
measure without-autoscalers
kubectl create -f "$data/autoscalers" >/dev/null
wait_for 'kubectl get hpa -o jsonpath="{range .items[*]}{.status.currentMetrics[0].type}{\"\n\"}{end}" | grep -c Resource' "$n"
sleep 30
measure with-autoscalers
began=$(date +%s.%N)
kubectl annotate pods -l app=web-7 hollow.skiff/cpu=100m --overwrite >/dev/null
wait_for 'kubectl get deployment web-7 -o jsonpath={.spec.replicas}' 4
awk "BEGIN{printf \"from-load-to-scale %.1f s\n\", $(date +%s.%N) - $began}"
