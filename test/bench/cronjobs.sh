#!/bin/bash
# CronJobs that are due at the same time, on a control plane without nodes: cronjobs.sh [COUNT], 1,000 unless told otherwise. Says how long after the full
# minute their Jobs are there, and what the server takes at rest before there are any CronJobs, and with them suspended. SKIFF is the program (bin/skiff).
set -euo pipefail
cd "$(dirname "$0")/../.."
count=${1:-1000} skiff=${SKIFF:-bin/skiff}
data=$(mktemp -d /tmp/skiff-cronjobs.XXXXXX)
trap '"$skiff" down --purge --name cronjobs --data-dir "$data" >/dev/null 2>&1; rm -rf "$data"' EXIT
port=$((20000 + RANDOM % 10000))
"$skiff" up --no-node --name cronjobs --data-dir "$data" --port $port >/dev/null
pid=$(cat "$data/skiff.pid")
k() { bin/kubectl --kubeconfig "$data/admin.kubeconfig" "$@"; }
ticks() { awk '{print $14 + $15}' /proc/$pid/stat; }
rest() { # WHAT: processor and memory over a minute, which has one full minute in it
  sleep "${REST:-20}"
  local a b; a=$(ticks); sleep 60; b=$(ticks)
  awk "BEGIN{printf \"$1: %.2f %% of a core\", ($b - $a) / 60}"
  awk '/^RssAnon/{printf ", %.1f MB anonymous\n", $2 / 1000}' /proc/$pid/status
}
rest 'at rest, no CronJobs'
[ "$count" != 0 ] || exit 0
until [ "$((10#$(date +%S)))" -lt 20 ]; do sleep 1; done # so that all are there before the next full minute
for i in $(seq "$count"); do
  printf -- '---\napiVersion: batch/v1\nkind: CronJob\nmetadata: {name: c-%d}\nspec:\n  schedule: "* * * * *"\n  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: nginx}]}}}}\n' "$i"
done | k create -f - >/dev/null
[ "$((10#$(date +%S)))" -lt 55 ] || { echo "creating $count CronJobs took too long" >&2; exit 1; }
k get --raw '/apis/batch/v1/jobs?watch=true&timeoutSeconds=90' | timeout 90 python3 -c '
import json, sys, time
late = []
for line in sys.stdin:
    event = json.loads(line)
    if event["type"] != "ADDED": continue
    now = time.time()
    due = int(event["object"]["metadata"]["name"].rsplit("-", 1)[1]) * 60
    late.append(now - due)
    if len(late) == int(sys.argv[1]): break
late.sort()
print(f"{len(late)} Jobs: the first {late[0]:.2f} s after the full minute, half of them after {late[len(late) // 2]:.2f} s, the last after {late[-1]:.2f} s")
' "$count" || true
k get cronjobs -o name | xargs -n 200 bin/kubectl --kubeconfig "$data/admin.kubeconfig" patch --type merge -p '{"spec":{"suspend":true}}' >/dev/null
k delete jobs --all --wait=false >/dev/null
rest "at rest, $count CronJobs suspended"
