#!/usr/bin/env bash
# Measures skiff's service proxy and upstream's kube-proxy, both with nftables, side by side against one API server, and prints a table for
# docs/performance.md:
#   test/bench/proxy.sh [SERVICES [ENDPOINTS]]     5,000 Services with 10 endpoints each unless told otherwise
# Each runs in a network namespace of its own, against a skiff API server in a third. What is measured: from the start of the process until all Services
# are in the kernel; the writing of rules alone, as the programs' own metrics have it; from a change of one endpoint in the API until packets follow it;
# processor time and memory. kube-proxy needs the nft program; it is built from its modules into build/upstream on first use.
set -euo pipefail
self=$(readlink -f "$0")
cd "$(dirname "$self")/../.."
up=${UPSTREAM_DIR:-$PWD/build/upstream} skiff=${SKIFF:-$PWD/bin/skiff} kubectl=${KUBECTL:-$PWD/bin/kubectl}
services=${1:-5000} each=${2:-10} rounds=${ROUNDS:-2} changes=${CHANGES:-15}

prepare() {
  "${SHARED_DIR:-$PWD/../shared}/upstream/build.sh" "$up" kube-proxy
  command -v nft >/dev/null || { echo 'proxy.sh: kube-proxy needs the nft program: install nftables' >&2; exit 1; }
}
. test/bench/alone.sh
for i in 1 2; do
  ip netns add proxy$i
  ip link add to$i type veth peer name eth0 netns proxy$i
  ip address add 10.9.$i.1/24 dev to$i
  ip link set to$i up
  ip -n proxy$i link set lo up
  ip -n proxy$i address add 10.9.$i.2/24 dev eth0
  ip -n proxy$i address add 10.50.0.1/32 dev lo
  ip -n proxy$i address add 10.50.0.2/32 dev lo
  ip -n proxy$i link set eth0 up
  ip -n proxy$i route add default via 10.9.$i.1
done

"$skiff" server --no-node --name bench --data-dir "$work/data" --port 6443 --bind-address 0.0.0.0 --advertise-address 10.9.1.1 --tls-san 10.9.1.1,10.9.2.1 > "$work/server.log" 2>&1 &
until [ -e "$work/data/admin.kubeconfig" ] && "$kubectl" --kubeconfig "$work/data/admin.kubeconfig" get --raw /readyz >/dev/null 2>&1; do
  sleep 0.2
  kill -0 $! || { cat "$work/server.log" >&2; exit 1; }
done
for i in 1 2; do sed -E "s#server: https://[^/]*#server: https://10.9.$i.1:6443#" "$work/data/admin.kubeconfig" > "$work/proxy$i.kubeconfig"; done
load() { python3 test/bench/proxy.py "$kubectl" "$work/data/admin.kubeconfig" "$@"; }
load fill "$services" "$each" >&2

report() { printf '%s\t%s\t%s\n' "$1" "$2" "${3:-less}" >> "$work/$system.$round"; echo "$system: $1: $2" >&2; }
ticks() { awk '{print ($14 + $15 + $16 + $17) / 100}' "/proc/$pid/stat"; } # with those of nft, which is a child
inside() { ip netns exec "$place" "$@"; }

# measure runs a proxy: measure SYSTEM NAMESPACE COMMAND...
measure() {
  system=$1 place=$2; shift 2
  local began; began=$(date +%s.%N)
  ip netns exec "$place" "$@" > "$work/$system.log" 2>&1 &
  pid=$!
  inside python3 test/bench/proxy.py - - await "$began" "$pid" > "$work/values" || { tail -20 "$work/$system.log" >&2; exit 1; }
  read -r wall full < "$work/values"
  report "start until $services Services with $((services * each)) endpoints are in the kernel (s)" "$wall"
  report 'of it writing rules (s)' "$full"
  report 'processor time for it, with nft (s)' "$(ticks)"
  sleep 5
  report 'memory then (MB resident)' "$(awk '/^VmRSS/{print $2 / 1000}' "/proc/$pid/status")"
  local before; before=$(ticks)
  report 'one endpoint changed in the API until packets follow, median (ms)' "$(inside python3 test/bench/proxy.py "$kubectl" "$work/$place.kubeconfig" change "$changes")"
  report "processor time for each, with nft (ms)" "$(awk "BEGIN{printf \"%.1f\", ($(ticks) - $before) * 1000 / $changes}")"
  report 'throughput through a Service (MB/s)' "$(inside python3 test/bench/proxy.py "$kubectl" "$work/$place.kubeconfig" stream 5)" more
  report 'new connections through a Service (per second)' "$(inside python3 test/bench/proxy.py "$kubectl" "$work/$place.kubeconfig" connect 5)" more
  report 'memory after that (MB resident)' "$(awk '/^VmRSS/{print $2 / 1000}' "/proc/$pid/status")"
  report 'most memory at any time (MB resident)' "$(awk '/^VmHWM/{print $2 / 1000}' "/proc/$pid/status")"
  kill "$pid"
  wait "$pid" || true
}

for round in $(seq "$rounds"); do
  ip netns exec proxy1 nft flush ruleset
  ip netns exec proxy2 nft flush ruleset
  measure upstream proxy1 "$up/kube-proxy" --kubeconfig "$work/proxy1.kubeconfig" --hostname-override node-1 --proxy-mode nftables --cluster-cidr 10.42.0.0/16 \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0 --conntrack-tcp-timeout-close-wait 0
  measure skiff proxy2 "$skiff" proxy --kubeconfig "$work/proxy2.kubeconfig" --hostname-override node-2 --proxy-mode nftables --cluster-cidr 10.42.0.0/16
done
python3 test/bench/table.py "$work" "$rounds" upstream skiff
