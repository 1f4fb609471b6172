#!/bin/bash
# A large cluster without containers: large.sh [PODS [NODES]], 50,000 pods on 1,000 hollow nodes unless told otherwise. Says how long it takes until all
# run, and what the server takes then: memory, and processor time at rest over half a minute.
set -euo pipefail
cd "$(dirname "$0")/../.."
pods=${1:-50000} nodes=${2:-1000} each=500
data=$(mktemp -d /tmp/skiff-large.XXXXXX)
trap 'bin/skiff down --purge --name large --data-dir "$data" >/dev/null 2>&1; rm -rf "$data"' EXIT
port=$((20000 + RANDOM % 10000))
bin/skiff up --no-node --hollow-nodes "$nodes" --name large --data-dir "$data" --port $port >/dev/null
pid=$(cat "$data/skiff.pid")
k() { bin/kubectl --kubeconfig "$data/admin.kubeconfig" "$@"; }
until [ "$(k get nodes --no-headers 2>/dev/null | grep -cw Ready)" = "$nodes" ]; do sleep 0.5; done
echo "$nodes nodes Ready after $SECONDS s"
began=$(date +%s.%N)
for i in $(seq $((pods / each))); do
  printf -- '---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: large-%d}\nspec:\n  replicas: %d\n  selector: {matchLabels: {app: large-%d}}\n  template:\n    metadata: {labels: {app: large-%d}}\n    spec: {containers: [{name: c, image: nginx, resources: {requests: {cpu: 10m, memory: 10Mi}}}]}\n' "$i" $each "$i" "$i"
done | k create -f - >/dev/null
running() { k get --raw /apis/apps/v1/deployments | grep -o '"availableReplicas":[0-9]*' | awk -F: '{n += $2} END {print n + 0}'; }
until [ "$(running)" -ge $((pods / each * each)) ]; do
  sleep 1
  [ "$(awk "BEGIN{print (systime() - $began > 1200)}")" = 0 ] || { echo "after 20 minutes only $(running) run" >&2; exit 1; }
done
awk "BEGIN{t = $(date +%s.%N) - $began; printf \"%d pods available after %.1f s, %.0f a second\n\", $pods, t, $pods / t}"
grep -E 'VmHWM' /proc/$pid/status | awk '{printf "most memory so far %.0f MB\n", $2 / 1000}'
sleep ${REST:-60}
ticks() { awk '{print $14 + $15}' /proc/$pid/stat; }
a=$(ticks); sleep 30; b=$(ticks)
awk "BEGIN{printf \"at rest %.1f %% of a core\n\", ($b - $a) / 30}"
awk '/^(VmRSS|RssAnon)/{printf "%s %.0f MB\n", $1, $2 / 1000}' /proc/$pid/status
