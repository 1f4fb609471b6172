#!/bin/bash
# What Events cost: events.sh [N …], 60,000 and 180,000 unless told otherwise. Creates Events until there are so many, and says after each number how much
# anonymous memory bin/skiff has more than without them, how large its database is, and how long a list of all Events takes. PROFILE=DIR keeps heap profiles there.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || set -- 60000 180000
skiff=${SKIFF:-bin/skiff}
data=$(mktemp -d /tmp/skiff-events.XXXXXX)
trap '"$skiff" down --purge --name events --data-dir "$data/cluster" >/dev/null 2>&1; rm -rf "$data"' EXIT
go build -o "$data/events" ./test/bench/events
port=$((20000 + RANDOM % 10000))
"$skiff" up --no-node --name events --data-dir "$data/cluster" --port $port >/dev/null
pid=$(cat "$data/cluster/skiff.pid")
anonymous() { awk '/^RssAnon/{printf "%.1f", $2 / 1000}' /proc/$pid/status; }
ticks() { awk '{print $14 + $15}' /proc/$pid/stat; }
sleep "${REST:-30}"
empty=$(anonymous)
echo "anonymous-memory-empty $empty MB"
have=0
for n in "$@"; do
  before=$(ticks)
  "$data/events" --kubeconfig "$data/cluster/admin.kubeconfig" --from $have --events $((n - have))
  awk "BEGIN{printf \"event-create-server-cpu %.1f us/op\n\", ($(ticks) - $before) * 10000 / ($n - $have)}"
  have=$n
  sleep "${REST:-30}"
  awk "BEGIN{printf \"anonymous-memory-$n %.1f MB more\n\", $(anonymous) - $empty}"
  echo "database-$n $(($(stat -c %s "$data"/cluster/*/member/snap/db) / 1000000)) MB"
  if [ -n "${PROFILE:-}" ]; then
    bin/kubectl --kubeconfig "$data/cluster/admin.kubeconfig" get --raw '/debug/pprof/heap?gc=1' >"$PROFILE/heap-$n"
    bin/kubectl --kubeconfig "$data/cluster/admin.kubeconfig" get --raw /metrics | grep '^go_memstats' >"$PROFILE/memstats-$n"
  fi
  before=$(ticks)
  "$data/events" --kubeconfig "$data/cluster/admin.kubeconfig" --from $have --events 0 --list
  awk "BEGIN{printf \"event-list-server-cpu %.0f ms for the three\n\", ($(ticks) - $before) * 10}"
  sleep "${REST:-30}"
  awk "BEGIN{printf \"anonymous-memory-$n-listed %.1f MB more\n\", $(anonymous) - $empty}"
done
awk '/^VmHWM/{printf "most-memory %.0f MB, pages of files included\n", $2 / 1000}' /proc/$pid/status
